import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automedeval.dataset.decontamination import ShingleIndex, near_duplicates, normalise, shingles
from automedeval.records import RecordError

# Few words, so that texts overlap.
TEXTS = st.lists(st.lists(st.sampled_from("abcde"), max_size=14).map(" ".join), max_size=25)


def hashed(text, words):
    return set(shingles(normalise(text), words).tolist())


def runs(text, words):
    """Return the runs of words of a text, as tuples: what a shingle stands for."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    length = min(words, len(found))
    return {tuple(found[start : start + length]) for start in range(len(found) - length + 1)} if found else set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What's  the DOSE—of\nIbuprofen (400 mg)?", "what s the dose of ibuprofen 400 mg"),
        ("ﬁbrosis ＮＡＳＨ Straße", "fibrosis nash strasse"),
        ("__ ? …", ""),
        ("был\ud800 тиф", "был тиф"),
        ("दिल क्या है?", "दिल क्या है"),
        ("السُّكَّري؟", "السُّكَّري"),
        ("糖尿病, 2型", "糖 尿 病 2 型"),
        ("ปวดหู", "ป ว ด ห ู"),
    ],
)
def test_normalising_leaves_words(text, words):
    assert normalise(text) == words
    assert normalise(words) == words


@given(st.lists(st.sampled_from("abcd"), max_size=30).map(" ".join), st.integers(1, 13))
def test_a_shingle_stands_for_one_run_of_words(text, words):
    assert len(shingles(normalise(text), words)) == len(runs(text, words))


@given(TEXTS, st.integers(1, 5))
def test_texts_share_the_shingles_that_they_share_runs_of(texts, words):
    for one in texts[:4]:
        for other in texts[:4]:
            if min(len(one.split()), len(other.split())) >= words:
                expected = len(runs(one, words) & runs(other, words))
                assert len(hashed(one, words) & hashed(other, words)) == expected


def test_shingles_are_the_same_in_every_process():
    code = (
        "from automedeval.dataset.decontamination import shingles\n"
        "print(shingles('take two tablets twice a day', 3).tolist())"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert shown[0].stdout == shown[1].stdout == f"{sorted(hashed('Take two tablets, twice a day.', 3))}\n"


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from([0.2, 0.5, 0.6, 0.75, 0.9, 1.0]))
def test_near_duplicates_are_those_that_comparing_all_pairs_finds(texts, threshold):
    expected = []
    for number, text in enumerate(texts):
        stays = [other for other in range(number) if expected[other] is None]
        own = runs(text, 3)
        fits = [
            other
            for other in stays
            if own and len(own & runs(texts[other], 3)) >= threshold * len(own | runs(texts[other], 3)) - 1e-9
        ]
        expected.append(fits[0] if fits else None)
    found = near_duplicates(texts, threshold)
    # Of several texts that stay, an equal one is named first; whether a text stays does not depend on that.
    assert [repeated is None for repeated in found] == [repeated is None for repeated in expected]
    for text, repeated, first in zip(texts, found, expected):
        assert repeated == first or normalise(texts[repeated]) == normalise(text)


@pytest.mark.parametrize(
    "questions",
    [
        ("दिल क्या है?", "दाल क्या है?"),  # What is the heart? What are lentils?
        ("ปวดหู", "ปวดหัว"),  # earache, headache
        ("காது வலி", "கை வலி"),  # ear pain, hand pain
    ],
)
def test_questions_that_differ_in_a_vowel_are_two(questions):
    assert near_duplicates(questions) == [None, None]
    assert near_duplicates([*questions, f"{questions[1]} …"]) == [None, None, 1]


def test_near_duplicates_name_the_first_text_that_stays():
    long = (
        "my mother is 81 and takes warfarin for her heart and now her doctor wants to add aspirin is that safe for her"
    )
    texts = [
        "What is gout?",
        long,
        "what is GOUT",
        f"{long} please",
        "What is acne?",
        f"{long} please",
        "",
        "",
        "What causes gout?",
    ]
    assert near_duplicates(texts) == [None, None, 0, 1, None, 1, None, None, None]
    assert near_duplicates(texts, threshold=1.0) == [None, None, 0, None, None, 3, None, None, None]
    assert near_duplicates([]) == []


def test_a_chain_of_small_changes_keeps_what_is_far_from_everything_kept():
    words = [f"w{number}" for number in range(40)]
    chain = [" ".join(words[start : start + 30]) for start in (0, 1, 2, 3, 4, 5)]
    # 28 shingles each; one step apart: 27 of 29 in common, three steps apart 25 of 31
    assert near_duplicates(chain, 0.85) == [None, 0, 0, None, 3, 3]


@pytest.mark.parametrize("threshold", [0, -0.5, 1.01, float("nan")])
def test_a_threshold_beyond_its_range_is_refused(threshold):
    with pytest.raises(RecordError, match="above 0 and at most 1"):
        near_duplicates(["a"], threshold)


@given(TEXTS, st.lists(st.sampled_from("abcdef"), max_size=20).map(" ".join))
def test_the_share_is_that_of_sets(texts, text):
    index = ShingleIndex(texts, words=3)
    sets, own = [hashed(one, 3) for one in texts], hashed(text, 3)
    held = max((len(own & one) / len(one) for one in sets if one), default=0.0)
    assert index.shared(text) == (len(own & set().union(*sets)) / len(own) if own else 0.0, held)


def test_half_a_copied_text_is_shared():
    copied = " ".join(f"copied{number}" for number in range(24))
    own = " ".join(f"own{number}" for number in range(24))
    index = ShingleIndex([f"before {copied} after"])
    # "before … after" has 15 runs of twelve words, 13 of them copied.
    assert index.shared(copied) == (1, 13 / 15)
    assert index.shared(own) == (0, 0)
    assert index.shared(f"{copied} {own}") == (13 / 37, 13 / 15)
