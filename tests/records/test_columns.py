"""Which columns of a table hold what: known names, other texts, and the command that a doubtful table is answered with."""

import re
import shlex
from pathlib import Path

from programs import error_line, judge_by_length, run_command, succeeded, told
from tables import each_row, rows_of, write_csv

TABLES = rows_of(__file__)


def judged(folder: Path, columns: dict[str, str | list[str]], *options: object):
    """Judge a table by the lengths of its texts; a cell has the number of its row."""
    rows = []
    for number in range(6):
        cells = [
            cell if isinstance(cell, str) else cell[number % len(cell)] for cell in columns.values()
        ]
        rows.append([cell.replace("{}", str(number)) for cell in cells])
    file = write_csv(folder / "t.csv", columns, rows)
    return judge_by_length(folder / "out", file, *options)


def test_known_names_and_columns_without_text_are_left_out_and_every_other_text_is_an_answer(
    tmp_path,
):
    answers, known, textless = (TABLES[name] for name in ("answers", "known", "textless"))
    done = judged(tmp_path, {"question": "Why {}?", **known, **answers, **textless})
    unread = [*known, *(f"{name} (no text)" for name in textless)]
    read = f"question, {', '.join(answers)} (answers); not read: {', '.join(unread)};"
    printed = told(done, f"read: {read}")
    for name in answers:
        assert re.search(rf"(?m)^{re.escape(name)} .* 6 +\d", printed)
    without = re.findall(r"(?m)^(\S+) .* no text, not judged", printed)
    assert without == list(textless)


@each_row("named, read")
def test_columns_that_are_named_are_added_to_those_that_are_known(named, read, tmp_path):
    told(judged(tmp_path, TABLES["partly known"], "--columns", *named), f"read: {read};")


@each_row("head, doubt, filled")
def test_a_doubtful_table_stops_with_the_command_that_answers(head, doubt, filled, tmp_path):
    columns = dict.fromkeys(head, "Text {}.") | TABLES["cells of a long table"]
    done = judged(tmp_path, {name: columns[name] for name in head})
    said, *ways = re.split("(?:; say it|, or) by automedeval ", error_line(done))
    assert said == f"error: {tmp_path}/t.csv: {doubt}; the columns are {', '.join(head)}"
    assert ", or by ".join(way.partition(" --columns ")[2] for way in ways) == filled
    for way in ways:
        assert ": read: " in succeeded(run_command(*shlex.split(way))).stdout
