"""Forms that the physicians' page refuses: each with a plain sentence, nothing stored, and nothing lost that was entered."""

import re
from html import unescape

import pytest
from doubles.study_page import opened, physician, stored, write_study
from factories import read, write
from tables import rows_of

RESPONSES = "/tasks/1/responses"
VERDICT = "/tasks/1/verdict-1"


@pytest.mark.parametrize(
    "change", [*rows_of(__file__)["test_a_forged_form_changes_nothing"], {"comments-1": "x" * 2001}]
)
def test_a_forged_form_changes_nothing(store, change):
    someone = physician(store)
    answer = someone.post(RESPONSES, **{**someone.fill(3), **change})
    assert (answer.status_code, stored(store)) == (422, [])
    # What was entered stands in the form that comes back, and it can be stored as soon as it fits.
    assert re.search(r'name="scores-2-fluency" value="4"[^>]* checked', answer.text)
    someone.post(RESPONSES, **someone.fill(3))
    assert stored(store) == ["responses"]


def test_a_form_that_is_not_complete_says_what_is_open(store):
    someone = physician(store)
    fields = someone.fill(3)
    del fields["scores-2-fluency"], fields["scores-3-fluency"]
    answer = someone.post(RESPONSES, **fields, **{"comments-1": "Kept as I wrote it."})
    assert answer.status_code == 422
    assert "2 of the rows below are still open" in answer.text
    assert answer.text.count("Still open.") == 2
    assert "Kept as I wrote it." in answer.text


@pytest.mark.parametrize("letter", ["x", "药", "🩺"])
def test_what_fits_its_fields_fits_the_form(tmp_path, letter):
    """Each text is as long as its field says; a letter takes up to twelve bytes of a form."""
    with opened(write_study(tmp_path, ("jury", "rate"), 1)) as store:
        someone = physician(store)
        rationale = f"Step 2: Doctor 1 {letter * 19_983}"
        fields = {**someone.fill(0), "decision": "revise", "rationale": rationale}
        assert someone.post("/tasks/1/decision", **fields).url.path == "/tasks/2"
        comments = {f"comments-{slot}": letter * 2_000 for slot in (1, 2, 3)}
        assert someone.post("/tasks/2/responses", **someone.fill(), **comments).status_code == 200
        decision, responses = store.answers()
        assert decision.content["rationale"] == rationale
        assert responses.content["comments"] == {str(slot): letter * 2_000 for slot in (1, 2, 3)}


def test_a_long_verdict_on_record_can_be_kept_skipped_and_revised(tmp_path):
    """Its field begins with its text, which the browser sends with every button."""
    study = write_study(tmp_path, ("jury",), 3)
    revisions = read(tmp_path / "revisions.jsonl")
    for each in revisions:
        each["old_verdict"]["rationale"] += "\nSo it is, and so it stays." * 4_000
    write(tmp_path / "revisions.jsonl", revisions)
    with opened(study) as store:
        someone = physician(store)

        def sent(decision):
            text = re.search(
                r'(?s)<textarea id="f-rationale"[^>]*>\n(.*?)</textarea>', someone.page
            )[1]
            return {**someone.fill(), "decision": decision, "rationale": unescape(text)}

        assert len(sent("keep")["rationale"]) > 100_000
        assert someone.post("/tasks/1/decision", **sent("keep")).url.path == "/tasks/2"
        assert (
            someone.post("/tasks/2/skip", reason="Too long.", **sent("keep")).url.path == "/tasks/3"
        )
        assert someone.post("/tasks/3/decision", **sent("revise")).url.path == "/"
        kept, revised = store.answers()
        assert (kept.content["decision"], revised.content["scores"]) == ("keep", [5, 5, 5])
        assert revised.content["rationale"].count("So it is, and so it stays.") == 4_000


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"a=%ed%a0%bd", 400), (b"\xff=1", 400), (b"a=1&" * 3000, 400), (b"{}", 422)],
)
def test_what_is_no_form_is_refused(store, content, status):
    someone = physician(store)
    answer = someone.client.post(RESPONSES, content=content)
    assert (answer.status_code, stored(store)) == (status, [])


def test_a_step_that_fails_can_be_repeated_and_says_nothing_untrue(tmp_path, monkeypatch):
    """The answer is on the disk, and the disk is full when the next task is to be assigned."""
    with opened(write_study(tmp_path, ("prefer",))) as store:
        someone = physician(store)
        form = someone.page
        with monkeypatch.context() as full:
            full.setattr(store, "next", lambda _: 1 / 0)
            failed = someone.post("/tasks/1/preference", **someone.fill())
        assert (failed.status_code, stored(store)) == (500, ["preference"])
        assert "Nothing was stored" not in failed.text
        assert "Please repeat the step." in failed.text
        someone.page = form
        assert someone.post("/tasks/1/preference", **someone.fill()).url.path == "/tasks/2"
        assert stored(store) == ["preference"]


def test_a_stale_form_changes_nothing_and_loses_nothing(store):
    someone = physician(store)
    old = someone.page
    someone.post(RESPONSES, **someone.fill(0))
    someone.page = old
    other = someone.post(RESPONSES, **someone.fill(4))  # the other tab rated otherwise
    assert (other.status_code, stored(store)) == (409, ["responses"])
    assert "<h1>This form is out of date</h1>" in other.text
    assert '<a class="button" href="/tasks/1">To the task as it stands now</a>' in other.text
    assert next(store.answers()).content["scores"]["1"]["fluency"] == 1
    assert someone.post(f"{RESPONSES}/draft", **someone.fill(4)).status_code == 409, (
        "what a browser sends late"
    )
    # After an undo the part is to be done again: the form that was sent comes back to be looked at.
    someone.get("/tasks/1")
    someone.post(VERDICT, **someone.fill())
    someone.post("/undo")
    someone.page = old
    again = someone.post(RESPONSES, **someone.fill(4))
    assert again.status_code == 409
    assert re.search(r'name="scores-1-fluency" value="5"[^>]* checked', again.text)
    assert (stored(store), someone.post(RESPONSES, **someone.fill(4)).status_code) == ([], 200)


def test_skipping_says_why_and_keeps_what_was_entered(store):
    someone = physician(store)
    wordless = someone.post("/tasks/1/skip", reason=" ", **{"scores-1-fluency": "2"})
    assert wordless.status_code == 422
    assert re.search(r'name="scores-1-fluency" value="2"[^>]* checked', wordless.text)
    assert store.assignment("physician-2", 1).state == "open"
    moved = someone.post(
        "/tasks/1/skip", reason="Not my field", **{"scores-1-fluency": "2", "comments-1": "Half"}
    )
    assert (moved.url.path, store.progress("physician-2").skipped) == ("/tasks/2", 1)
    assert "This task was skipped" in someone.get("/tasks/1").text
    someone.get("/tasks/2")
    back = someone.post("/tasks/2/responses/draft", then="undo", **{"comments-1": "A thought"})
    assert back.url.path == "/tasks/1"
    assert re.search(r'name="scores-1-fluency" value="2"[^>]* checked', back.text)
    assert "Half" in back.text
    for part in (RESPONSES, VERDICT):
        someone.post(part, **someone.fill())
    assert "A thought" in someone.get("/tasks/2").text
