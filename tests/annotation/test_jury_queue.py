"""What the jury is shown: the queue joined with the round's records, and verdicts in the slots of the physician."""

import shutil
from pathlib import Path

from doubles.introspection_study import MODELS, Lessons
from doubles.small_study import a_study, write_lines
from factories import read
from programs import module_fixture, succeeded
from tables import each_row, refused


@module_fixture
def round_1(tmp_path_factory):
    """Leave two cases to the jury: one that was discussed, one that could not be read; a third is agreed on."""
    lessons = Lessons(tmp_path_factory.mktemp("round"))
    for number, scores in ((0, (3, 3, 3)), (2, (3, 3, 3)), (4, None)):
        lessons.misjudge(number, scores)
    lessons.agree(2, (5, 4, 1))
    for number in (0, 4):
        for call in (1, 2, 3):
            points = "Score: Doctor 1: 5 points. Doctor 2: 4 points. Doctor 3: 2 points."
            lessons.say(number, "suggestion", f"Suggestion: Doctor 1 is ash.\n{points}", call)
            lessons.say(number, "review", f"Review: object\nNot Doctor 3, objection {call}.", call)
    assert "2 cases for the jury" in succeeded(lessons.discuss()).stdout
    return lessons


def jury_of(lessons) -> dict[str, str]:
    return {"queue": str(lessons.folder / "round1.discussion/jury.jsonl")}


def copied(lessons, folder: Path) -> dict[str, str]:
    """Copy what the jury is shown into a folder, where a test may change it."""
    shutil.copytree(lessons.folder / "round1.discussion", folder / "queue")
    return {"queue": str(folder / "queue/jury.jsonl")}


def test_the_jury_is_shown_both_verdicts_and_the_discussion(round_1, tmp_path):
    study = a_study(tmp_path, 8, rate=None, jury=jury_of(round_1))
    asked = [(item.key, item.kind, item.needed) for item in study.items]
    assert asked == [("jury/case-0", "jury", 1), ("jury/case-4", "jury", 1)]
    assert study.plans["jury"].roles == ("chief",)
    assert study.case_of(study.items[0]).models == list(MODELS)
    dispute = study.disputes["case-0"]
    unread = study.disputes["case-4"]
    assert dispute.recorded.scores == round_1.record["case-0"]
    assert (dispute.judged.judge, dispute.judged.scores) == ("judge", (3, 3, 3))
    assert (unread.judged.valid, unread.judged.error) == (False, "no score line")
    titles = [title for title, _ in dispute.exchanges]
    assert titles[:3] == ["Suggestion 1", "Review 1", "Suggestion 2"]
    assert len(titles) == 6


@each_row("change, message")
def test_a_queue_that_does_not_fit_is_named(round_1, tmp_path, change, message):
    jury = copied(round_1, tmp_path)
    first, *rest = read(jury["queue"])
    write_lines(Path(jury["queue"]), [first | change, *rest])
    with refused("", message):
        a_study(tmp_path, 8, rate=None, jury=jury)


def test_a_record_of_another_program_is_named(round_1, tmp_path):
    jury = copied(round_1, tmp_path)
    revisions = Path(jury["queue"]).with_name("revisions.jsonl")
    records = read(revisions)
    for record in records:
        del record["old_verdict"]
    write_lines(revisions, records)
    with refused(f"{revisions}:1: "):
        a_study(tmp_path, 8, rate=None, jury=jury)
