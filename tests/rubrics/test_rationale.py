"""The steps of a rationale: reading them, and showing the doctors in another order."""

from itertools import permutations, product

import pytest
from factories import read
from hypothesis import given
from hypothesis import strategies as st
from programs import ROOT
from tables import each_row, rows_of

from automedeval.rubrics.rationale import _rename, permute, split_steps

ROWS = rows_of(__file__)
FORMS = ROWS["forms"]
RECORDING = ROOT / "recipes/runs/automedeval-135m/teacher.jsonl"


def doctors_named(text: str) -> list[int]:
    """The numbers of the doctors that are renumbered in a text, in order and with repetitions."""
    doctors: list[int] = []
    _rename(text, lambda number: doctors.append(number) or number)
    return doctors


def written(form: str, texts: dict[int, str]) -> str:
    steps = (form.format(step=at + 1, doctor=at, text=text) for at, text in texts.items())
    return FORMS[form].join(steps)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_split(form):
    texts = {1: "One.", 2: "Two\nlines.", 3: "Three"}
    assert split_steps(written(form, texts)) == texts


@each_row("text, texts")
def test_what_is_no_step_of_a_doctor_is_on_the_question(text, texts):
    assert split_steps(text) == dict(texts)


@each_row("text, doctors")
def test_doctors_are_named(text, doctors):
    assert doctors_named(text) == doctors


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("slots", [*permutations(range(3))])
def test_every_form_is_permuted(form, slots):
    texts = ("One.", "Two.", "Three.")
    before = texts
    after = [texts[slot] for slot in slots]
    turned = permute(written(form, dict(enumerate(before, 1))), slots)
    assert turned == written(form, dict(enumerate(after, 1)))


def in_german(text: str) -> str:
    return text.replace("Doctor", "Antwort").replace("doctor", "antwort")


def test_a_rubric_has_a_word_of_its_own_for_doctors():
    texts = {1: "Doctor 3 is alike.", 2: "Doctors 1 and 3 are not.", 3: "The first doctor is."}
    for form, slots in product(FORMS, permutations(range(3))):
        text = written(form, texts)
        turned = permute(text, slots)
        assert permute(in_german(text), slots, "Antwort") == in_german(turned)
    turned = permute("Therapist 1 beats the second therapist.", (1, 0), "Therapist")
    assert turned == "Therapist 2 beats the first therapist."
    turned = permute("Antwort 1 and Doctor 2", (1, 0), "Antwort")
    assert turned == "Antwort 2 and Doctor 1"


@each_row("text, slots, turned")
def test_steps_and_names_follow_the_order(text, slots, turned):
    assert permute(text, slots) == turned


@each_row("text")
def test_numbers_of_days_are_no_doctors(text):
    for slots in permutations(range(4)):
        place = slots.index(0) + 1
        turned = permute(f"Doctor 1 says: {text}", slots)
        assert turned == f"Doctor {place} says: {text}"


@each_row("slots")
def test_slots_are_a_permutation(slots):
    with pytest.raises(ValueError, match="permutation"):
        permute("Step 2: One.", slots)


WORDS = st.sampled_from(ROWS["words"])
# A text that opens with "Doctor 2:" would be a part of its header.
BODIES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
BODIES = BODIES.filter(lambda text: not text.startswith("Doctor 2:"))


@st.composite
def rationales(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """Draw a rationale in one of the forms, steps missing or out of order, and an order to show its doctors in."""
    count = draw(st.integers(1, 5))
    slots = draw(st.permutations(range(count)))
    doctors = draw(st.lists(st.integers(1, count), unique=True))
    texts = {doctor: draw(BODIES) for doctor in doctors}
    start = draw(st.sampled_from(["", "Analyze:\n", "Doctor 2 wins.\n"]))
    form = draw(st.sampled_from([*FORMS]))
    rationale = start + written(form, texts)
    return rationale or draw(BODIES), tuple(slots)


@given(rationales(), st.data())
def test_orders_follow_one_another(drawn, data):
    text, slots = drawn
    unchanged = tuple(range(len(slots)))
    then = data.draw(st.permutations(unchanged))
    at_once = tuple(slots[slot] for slot in then)
    first = permute(text, slots)
    assert permute(first, tuple(then)) == permute(text, at_once)
    assert permute(text, unchanged) == text, "so the inverse order gives the rationale back"


@given(rationales())
def test_a_step_goes_where_its_doctor_goes(drawn):
    text, slots = drawn
    before = split_steps(text)
    after = split_steps(permute(text, slots))
    number_of = {former + 1: slot for slot, former in enumerate(slots, 1)}
    for former, number in number_of.items():
        assert (former in before) == (number in after)
        if former in before:
            turned = [number_of.get(doctor, doctor) for doctor in doctors_named(before[former])]
            assert doctors_named(after[number]) == turned


def test_every_recorded_rationale_comes_back():
    texts = [line["text"] for line in read(RECORDING)]
    texts = [text for text in texts if text.startswith("Analyze:") and "fault" not in text]
    assert len(texts) > 100
    for text in texts:
        rationale = text.partition("\nScore:")[0]
        assert split_steps(rationale).keys() >= {0, 1}
        turned = permute(rationale, (1, 2, 0))
        assert permute(turned, (2, 0, 1)) == rationale


def test_a_long_text_is_read_quickly():
    hostile = "Step 2 (" * 20_000 + " Doctors 1, " * 20_000 + "Step" + " " * 50_000
    turned = permute(hostile, (1, 0))
    assert permute(turned, (1, 0)) == hostile
