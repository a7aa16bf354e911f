"""Record what the partners of a round say of FeedbackQA's weak verdicts: the second rater suggests, and the arm decides.

    python recipes/runs/feedbackqa/partners.py DATA OUTPUT ARM

In arm I a suggestion is accepted if it is nearer to the expected score of the judge that was not trained on the row than the
verdict on record is. In arm X as many are accepted as in arm I, drawn at random among those that change the score. The second
rater keeps strong verdicts. The third rater says nothing here; with the word precision as ARM the revisions of both arms are
compared with the third rater's scores, where there is one: how many are nearer to them than the verdict was, and how many not.
"""

import sys
from itertools import chain
from pathlib import Path
from typing import Any

from automedeval.records import Rating, Verdict, read_lines, read_records
from automedeval.records.journal import write_json, write_lines
from automedeval.study.dataset.curriculum import shuffled
from automedeval.study.dataset.folder import read_dataset

Scores = dict[str, int]  # by the id of a row


def rated_by(data: Path, rater: str) -> dict[str, Rating]:
    """Return a rater's ratings by the id of the row."""
    ratings = read_records(data / "feedbackqa/ratings.jsonl", Rating)
    return {f"{each.case_id}/{each.model}": each for each in ratings if each.annotator == rater}


def weak_scores(output: Path) -> Scores:
    """Return the scores on record of the weak rows."""
    rows = [
        row for row in read_dataset(output / "instructions").training if row["teacher"] == "weak"
    ]
    return {row["case_id"]: int(row["completion"][0]["content"].split()[1]) for row in rows}


def expected_of(output: Path) -> dict[str, float]:
    """Return the expected score of each row by the judge that was not trained on it."""
    files = (output / "verdicts" / fold / "verdicts.jsonl" for fold in ("F1", "F2"))
    verdicts = list(chain.from_iterable(read_records(file, Verdict) for file in files))
    return {each.case_id: each.value(0) for each in verdicts if each.value(0) is not None}


def revisions(output: Path, arm: str) -> list[dict[str, Any]]:
    """Return the records of the rows that an arm revised."""
    records = read_lines(output / f"instructions-{arm}/revisions.jsonl")
    return [record for _, record in records if record["revised_verdict"]]


def messages(row: str, second: Rating | None, accepted: bool) -> list[dict[str, Any]]:
    """Return the lines of a row: the second rater suggests and is accepted or objected to, or keeps the verdict."""
    keep, agree = "Suggestion: keep", "Review: accept"
    said = [("suggestion", keep), ("review", agree)]
    if second is not None:
        verdict = f"Score: {int(second.score)}\n{' '.join((second.comment or '-').split())}"
        said = [("suggestion", f"Suggestion: {verdict}"), ("review", agree), ("revision", verdict)]
    if second is not None and not accepted:
        object_to = ("review", "Review: object\nThe judge is nearer to the verdict on record.")
        said = [said[0], object_to, ("suggestion", keep), ("review", agree)]
    lines: list[dict[str, Any]] = []
    for role, text in said:
        number = 1 + sum(line["role"] == role for line in lines)
        about = {"case_id": row, "teacher": "strong", "role": role, "knowledge": "none"}
        lines.append(about | {"round": number, "text": text})
    return lines


def record(data: Path, output: Path, arm: str) -> None:
    """Write the recording of an arm's partners."""
    second, old, expected = rated_by(data, "rater-2"), weak_scores(output), expected_of(output)
    changing = [row for row in old if second[row].score != old[row]]
    if arm == "X":
        accepted = set(shuffled(0, "X", changing)[: len(revisions(output, "I"))])
        changing = sorted(accepted)
    else:
        accepted = {
            row
            for row in changing
            if row in expected
            and abs(expected[row] - second[row].score) < abs(expected[row] - old[row])
        }
    rows = [row["case_id"] for row in read_dataset(output / "instructions").training]
    suggesting = set(changing)
    lines: list[dict[str, Any]] = []
    for row in rows:
        lines += messages(row, second[row] if row in suggesting else None, row in accepted)
    write_lines(output / f"partners-{arm}.jsonl", lines)
    print(f"{arm}: {len(changing):,} suggestions of another score, {len(accepted):,} accepted")


def precision(data: Path, output: Path) -> None:
    """Compare the revised scores of both arms with the third rater's."""
    third, found = rated_by(data, "rater-3"), {}
    for arm in ("I", "X"):
        gains = []
        for each in revisions(output, arm):
            if (rating := third.get(each["case_id"])) is not None:
                (was,), (now,) = each["old_verdict"]["scores"], each["revised_verdict"]["scores"]
                gains.append(abs(was - rating.score) - abs(now - rating.score))
        counts = {"revised": len(revisions(output, arm)), "with a third rater": len(gains)}
        counts |= {"nearer": sum(gain > 0 for gain in gains)}
        found[arm] = counts | {"farther": sum(gain < 0 for gain in gains), "gain": sum(gains)}
    write_json(output / "precision.json", found)
    print(found)


if __name__ == "__main__":
    folders = Path(sys.argv[1]), Path(sys.argv[2])
    precision(*folders) if sys.argv[3] == "precision" else record(*folders, sys.argv[3])
