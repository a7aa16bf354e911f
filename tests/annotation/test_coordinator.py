"""The coordinator's pages over HTTP: the password and its limits, progress, links and files."""

import io
import re
import zipfile
from html import unescape
from pathlib import Path

import pytest
from doubles.study_page import JUDGES, MODELS, Physician, client_of, opened, write_study

from automedeval.annotation.assignment import Assignment
from automedeval.annotation.coordinator import set_password
from automedeval.annotation.export import write_export
from automedeval.annotation.store import Store
from automedeval.records import RecordError

pytest_plugins = ["doubles.study_databases"]
PASSWORD = "correct horse battery"
CRITERIA = ("relevancy", "knowledge_correctness", "fluency")
QUESTIONS = ("knowledge", "attribution", "fluency")
PEOPLE = ("physician-1", "physician-2", "physician-3")


@pytest.fixture
def store(tmp_path: Path, clock):
    """Yield the store of eight cases that everybody rates, with every kind of task."""
    rate = {"raters": 3, "overlap": 8, "judges": [JUDGES[0]]}
    prefer = {"judges": list(JUDGES), "raters": 3}
    with opened(write_study(tmp_path, cases=8, rate=rate, prefer=prefer), clock=clock) as store:
        set_password(store, PASSWORD)
        yield store


def fields_of(study_models: list[str], assignment: Assignment, part: str, score) -> dict:
    """Return an answer to a part; `score` gives that of a model (None: of the verdict) on a criterion."""
    if part == "responses":
        slots = {str(slot): study_models[index] for slot, index in enumerate(assignment.order, 1)}
        return {"scores": {slot: {name: score(model, name) for name in CRITERIA} for slot, model in slots.items()}}
    if part == "preference":  # always the first judge, wherever it stands
        return {"choices": dict.fromkeys(QUESTIONS, str(assignment.order.index(0) + 1)), "comment": ""}
    if part == "decision":
        return {"decision": "keep"}
    if part == "harm":
        words = {"degree": "severe", "likelihood": "low", "cause": "omission"}
        slots = [str(slot) for slot in range(1, len(study_models) + 1)]
        return {"choices": dict.fromkeys(slots, words), "marks": {slot: [[0, 4]] for slot in slots}}
    return {"scores": {name: score(None, name) for name in QUESTIONS}, "tags": ["outdated"], "comment": "An old rule."}


def work(store: Store, annotator: str, score, most: int = 100, seconds: float = 30.0) -> int:
    """Do an annotator's tasks; return how many."""
    for done in range(most):
        assignment = store.next(annotator)
        if assignment is None:
            return done
        while assignment.part is not None:
            models = store.study.case_of(assignment.item).models
            fields = fields_of(models, assignment, assignment.part, score)
            assignment = store.answer(annotator, assignment.id, assignment.part, fields, assignment.version, seconds)
    return most


def agreeing(shift: int = 0):
    """Return scores that follow the model alone, `shift` higher where the scale goes on."""
    return lambda model, _: min(5, (MODELS.index(model) * 2 + 1 if model else 3) + shift)


def signed_in(store: Store) -> Physician:
    visitor = Physician(client_of(store))
    visitor.get("/coordinator/login")
    answer = visitor.post("/coordinator/login", password=PASSWORD)
    assert answer.status_code == 200
    assert "How the study goes" in visitor.page
    return visitor


def rows(page: str, caption: str) -> list[list[str]]:
    """Return the cells of the table with a caption."""
    table = re.search(rf"<caption[^>]*>{caption}.*?</table>", page, re.S)[0]
    body = table.split("<tbody>")[1]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in body.split("<tr>")[1:]]
    return [[unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in row] for row in cells]


@pytest.mark.parametrize("path", ["", "/export.zip"])
def test_without_the_password_there_is_only_the_question_for_it(store: Store, path: str) -> None:
    work(store, "physician-1", agreeing(), 2)
    client = client_of(store)
    answer = client.get(f"/coordinator{path}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"], answer.text) == (303, "/coordinator/login", "")
    physician = Physician(client)
    physician.sign_in(store.invite("physician-2"))  # a physician is no coordinator
    assert client.get(f"/coordinator{path}", follow_redirects=False).status_code == 303


def test_a_session_ends_with_its_password_with_time_and_by_leaving(store: Store, clock) -> None:
    visitor = signed_in(store)
    clock.now += 12 * 3600
    assert visitor.client.get("/coordinator", follow_redirects=False).status_code == 303
    visitor = signed_in(store)
    assert visitor.post("/coordinator/leave").url.path == "/coordinator/login"
    assert visitor.client.get("/coordinator", follow_redirects=False).status_code == 303
    visitor = signed_in(store)
    set_password(store, PASSWORD)  # at every start, if the environment gives it
    assert visitor.client.get("/coordinator", follow_redirects=False).status_code == 200
    set_password(store, PASSWORD + "!")
    assert visitor.client.get("/coordinator", follow_redirects=False).status_code == 303


def test_the_password_is_kept_as_its_hash_and_is_long_enough(store: Store) -> None:
    kept = store.setting("coordinator_password")
    assert kept.startswith("$argon2id$")
    assert PASSWORD not in kept
    assert not set_password(store, "another password", anew=False)
    with pytest.raises(RecordError, match="at least 12 characters, not 5"):
        set_password(store, "short")
    assert store.setting("coordinator_password") == kept


def test_a_form_without_its_token_signs_nobody_in_and_invites_nobody(store: Store) -> None:
    client = client_of(store)
    assert client.post("/coordinator/login", data={"password": PASSWORD}).status_code == 403
    visitor, token = signed_in(store), store.invite("physician-1")
    answer = visitor.client.post("/coordinator/invite", data={"annotator": "physician-1", "csrf": "forged"})
    assert (answer.status_code, store.annotator_of(token).name) == (403, "physician-1")
    assert visitor.client.get("/coordinator/invite").status_code == 405


def test_an_empty_study_has_a_page(store: Store) -> None:
    page = signed_in(store).page
    assert "stored: 0 ratings of responses, 0 of verdicts, 0 decisions of the jury, 0 preferences." in page
    assert rows(page, "Tasks of every physician")[0][:7] == ["physician-1", "attending", "0", "0", "0", "16", "–"]
    assert "<img" not in page


def test_progress_of_every_physician(store: Store, clock) -> None:
    work(store, "physician-1", agreeing(), 3, seconds=90.0)
    work(store, "physician-2", agreeing(), 2, seconds=30.5)
    skipped = store.next("physician-2")
    store.skip("physician-2", skipped.id, "The question is cut off.", skipped.version)
    store.next("physician-2")
    table = rows(signed_in(store).page, "Tasks of every physician")
    # The times are those of two parts.
    assert table[0][:8] == ["physician-1", "attending", "3", "0", "0", "13", "3:00", "1970-01-12 13:46 UTC"]
    assert table[1][:7] == ["physician-2", "chief", "2", "1", "1", "20", "1:01"]
    assert table[2][:7] == ["physician-3", "chief", "0", "0", "0", "24", "–"]


def test_who_skips_or_takes_back_is_not_idle(store: Store, clock) -> None:
    def last() -> str:
        return rows(signed_in(store).page, "Tasks of every physician")[0][7]

    task = store.next("physician-1")
    assert last() == "–"
    store.skip("physician-1", task.id, "The question is cut off.", task.version)
    assert last() == "1970-01-12 13:46 UTC"
    clock.now += 3600
    store.undo("physician-1")
    assert last() == "1970-01-12 14:46 UTC"


def test_times_on_tasks_outlive_changes_of_kinds(tmp_path: Path) -> None:
    with opened(write_study(tmp_path, ("rate",))) as store:
        work(store, "physician-1", agreeing(), 1, seconds=90.0)
    with opened(write_study(tmp_path, ("prefer",))) as store:
        set_password(store, PASSWORD)
        table = rows(signed_in(store).page, "Tasks of every physician")
        assert [(row[2], row[6]) for row in table] == [("1", "3:00"), ("0", "–"), ("0", "–")]  # a task has two parts


def test_a_new_link_signs_in_and_the_old_one_no_longer(store: Store) -> None:
    old = store.invite("physician-1")
    visitor = signed_in(store)
    assert visitor.post("/coordinator/invite", annotator="physician-1").status_code == 200
    link = unescape(re.search(r'readonly value="([^"]+)"', visitor.page)[1])
    assert link.startswith("http://testserver/invitation/")
    assert store.annotator_of(old) is None
    assert store.annotator_of(link.rpartition("/")[2]).name == "physician-1"
    visitor.get("/coordinator")
    assert visitor.post("/coordinator/invite", annotator="nobody").status_code == 404


def test_the_archive_holds_the_files_of_the_export(store: Store, tmp_path: Path) -> None:
    for name in PEOPLE:
        work(store, name, agreeing(), 12)
    answer = signed_in(store).client.get("/coordinator/export.zip")
    assert answer.headers["content-disposition"] == 'attachment; filename="export.zip"'
    write_export(store, tmp_path / "out")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert contents == {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert {"ratings.jsonl", "verdict_ratings.jsonl", "history.jsonl"} <= contents.keys()
