"""The physicians' page by its requests: what it shows and withholds, whom it lets in, and what every answer carries."""

import re

import pytest
from doubles.agreement_study import read, write
from doubles.study_page import (
    JUDGES,
    MODELS,
    Physician,
    client_of,
    opened,
    physician,
    stored,
    write_study,
)
from tables import holds_all

from automedeval.annotation.security import BODY_LIMIT, HEADERS
from automedeval.rubrics.rubric import PACKAGED

RESPONSES = "/tasks/1/responses"
VERDICT = "/tasks/1/verdict-1"
SAFE = "names a safe dose and a limit."


def responses_of(page: str) -> dict[str, str]:
    """Return the text of each doctor's response, by the doctor's number."""
    return dict(
        re.findall(
            r"(?s)<h2>Doctor (\d)</h2>\s*<div class=\"prose\" dir=\"auto\">(.*?)</div>", page
        )
    )


def safe_one(page: str) -> str:
    """Return the number of the doctor with the safe answer."""
    return next(number for number, text in responses_of(page).items() if "acetaminophen" in text)


def test_the_verdict_is_withheld_until_the_ratings_are_stored(store):
    someone = physician(store)
    telling = ("patient asks about a pain pill", SAFE, "The verdict</h2>")
    assert not any(text in someone.page for text in telling)
    assert someone.client.get(VERDICT).status_code == 405
    scores = {f"scores-{name}": 5 for name in ("knowledge", "attribution", "fluency")}
    early = someone.post(VERDICT, version=0, **scores)
    assert early.status_code == 409
    assert not any(text in early.text for text in telling)
    someone.get("/tasks/1")
    later = someone.post(RESPONSES, **someone.fill())
    assert all(text in later.text for text in telling)
    assert safe_one(later.text) == "1", "as the judge saw it"
    said = {"tags": ["incomplete", "outdated"], "comment": "It forgets the dose."}
    someone.post(VERDICT, **someone.fill(), **said)
    _, verdict = (answer.content for answer in store.answers())
    assert verdict == verdict | said


def test_a_comparison_shows_all_responses_and_both_verdicts_side_by_side(tmp_path):
    study, orders = write_study(tmp_path, ("prefer",), 1), ([0, 1, 2], [1, 0, 2])
    given = read(tmp_path / "verdicts.jsonl")
    given[1] |= {"order": orders[1], "rationale": "reading 2: Doctors one and 2, not 3."}
    write(tmp_path / "verdicts.jsonl", given)
    with opened(study) as store:
        someone = physician(store)
        order = store.assignment("physician-2", 1).order
        shown = responses_of(someone.page)
        # The three answers of the case begin so.
        assert ["TID".index(shown[number][0]) for number in "123"] == orders[order[0]]
        same = "<p>This text has other numbers: its Doctor 1 is Doctor 2, its Doctor 2 is Doctor 1.</p>"
        assert someone.page.count(same) == 1
        assert "Doctors one and 2, not 3." in someone.page, "as the judge wrote it"
        assert re.findall(r"reading (\d)", someone.page) == [str(place + 1) for place in order]
        done = someone.post("/tasks/1/preference", **dict.fromkeys(someone.asked(), "tie"))
        assert done.url.path == "/"
        assert set(next(store.answers()).content["choices"].values()) == {"tie"}


def test_no_page_names_a_model_or_a_judge(store):
    someone = Physician(client_of(store))
    pages = []
    pages.append(someone.get("/").text)
    someone.sign_in(store.invite("physician-2"))
    someone.post("/next")
    while 'id="task"' in someone.page:
        pages.append(someone.page)
        pages.append(someone.post(someone.place()).text)  # the form again, with what is missing
        someone.post(someone.place(), **someone.fill(0))
    assert len(pages) > 10
    for page in pages:
        assert not [name for name in (*MODELS, *JUDGES, "case-1", "case-2") if name in page]


def test_wide_scales_conversations_and_empty_responses_are_shown(tmp_path):
    rubric = tmp_path / "wide.yaml"
    packaged = (PACKAGED / "automedeval.yaml").read_text(encoding="utf-8")
    rubric.write_text(packaged.replace("  maximum: 5", "  maximum: 20"))
    study = write_study(tmp_path, ("rate",), 1, rubric=str(rubric))
    (case,) = read(tmp_path / "cases.jsonl")
    talk = {"assistant": "How can I help?", "user": "It hurts & burns."}
    case["question"] = [{"role": role, "content": text} for role, text in talk.items()]
    case["responses"][0]["text"] = " "
    write(tmp_path / "cases.jsonl", [case])
    shown = ("<h2>Answer</h2>", "<h2>Patient</h2>", "It hurts &amp; burns.", "response is empty.")
    with opened(study) as store:
        someone = physician(store)
        holds_all(someone.page, shown)
        names = someone.asked()
        assert list(names.values()) == [[str(points) for points in range(1, 21)]] * 9
        # a button that does not check a form
        fields = {next(iter(names)): "21", "comments-1": "Half a thought."}
        assert someone.post(f"{RESPONSES}/draft", then="leave", **fields).status_code == 422
        assert "Half a thought." in someone.page
        comment = {"comments-2": "  One\r\ntwo.  "}
        assert someone.post(RESPONSES, **dict.fromkeys(names, "17"), **comment).status_code == 200
        answer = next(store.answers()).content
        assert (answer["scores"]["1"]["fluency"], answer["comments"]) == (17, {"2": "One\ntwo."})


def test_following_an_invitation_does_not_sign_in_and_signing_in_ends_what_was(store):
    assert "open the invitation link" in Physician(client_of(store)).get("/").text
    someone = physician(store)
    token = store.invite("physician-1")
    assert someone.get(f"/invitation/{token}").status_code == 200
    assert "This invitation is for <strong>physician-1</strong>" in someone.page
    assert someone.get("/tasks/1").status_code == 200
    someone.sign_in(token)
    assert "Signed in as <strong>physician-1</strong>" in someone.page
    assert someone.get("/tasks/1").status_code == 404


def test_a_new_invitation_ends_the_sessions_of_the_old_one(store):
    someone = physician(store)
    token = store.invite("physician-2")
    answer = someone.post(RESPONSES, **someone.fill())
    assert (answer.status_code, stored(store)) == (401, [])
    assert "ask your coordinator for a new one" in answer.text
    assert someone.get("/invitation/nonsense").status_code == 404
    # A page that was open before can be sent after signing in again: what it held is not lost.
    again = Physician(client_of(store))
    again.sign_in(token)
    open_page = again.post("/next").text
    again.post("/leave")
    assert again.get("/tasks/1").status_code == 401
    again.sign_in(token)
    again.page = open_page
    assert again.post(RESPONSES, **again.fill()).status_code == 200


def test_a_task_of_another_is_not_there(store):
    physician(store)
    other = physician(store, "physician-1")
    assert (other.place(), other.client.get("/tasks/2").status_code) == ("/tasks/2/responses", 200)
    for path in ("/tasks/1", "/tasks/999", f"/tasks/{10**30}"):
        answer = other.client.get(path)
        assert (answer.status_code, "There is no such task for you." in answer.text) == (404, True)
    others = (RESPONSES, f"{RESPONSES}/draft", "/tasks/1/skip")
    for path in (*others, "/tasks/2/decision", "/tasks/2/verdict-2", "/tasks/2/x/draft"):
        answer = other.post(path, follow=False, **other.fill(), reason="no")
        assert answer.status_code == 404, path
    assert stored(store) == []


def test_sessions_are_signed_and_out_of_reach_of_scripts(store):
    place = f"/invitation/{store.invite('physician-1')}"
    answer = client_of(store).post(place, follow_redirects=False)
    assert "httponly; samesite=lax" in answer.headers["set-cookie"].lower()
    someone = physician(store)
    cookie = someone.client.cookies["session"]
    forged = f"{'B' if cookie[0] == 'A' else 'A'}{cookie[1:]}"
    someone.client.cookies.clear()
    someone.client.cookies.set("session", forged)
    assert someone.get("/tasks/1").status_code == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_form_of_another_site_stores_nothing(store, site):
    someone = physician(store)
    fields = someone.fill()
    someone.client.headers["Sec-Fetch-Site"] = site
    for path in (RESPONSES, "/next", "/undo", "/leave", "/tasks/1/skip", f"{RESPONSES}/draft"):
        answer = someone.post(path, follow=False, **fields)
        assert (answer.status_code, "Nothing was stored" in answer.text) == (403, True), path
    assert (stored(store), store.assignment("physician-2", 1).state) == ([], "open")
    someone.client.headers["Sec-Fetch-Site"] = "same-origin"
    assert someone.post(RESPONSES, **fields, version=0).status_code == 200


def test_every_answer_has_the_security_headers(store, monkeypatch):
    someone = physician(store)
    paths = {"/": 200, "/tasks/1": 200, "/nowhere": 404, "/tasks/7": 404, "/page.css": 200}
    answers = [(someone.client.get(path), status) for path, status in paths.items()]
    answers += [(someone.client.get("/next"), 405), (someone.client.put("/tasks/1"), 405)]
    elsewhere = someone.client.post(RESPONSES, headers={"Sec-Fetch-Site": "cross-site"})
    large = someone.client.post(RESPONSES, content=b"x" * (BODY_LIMIT + 1))

    def fail(*_):
        raise RuntimeError("secret-of-the-machine")

    monkeypatch.setattr(store, "progress", fail)
    failed = someone.client.get("/")
    answers += [(elsewhere, 403), (large, 413), (failed, 500)]
    assert "secret-of-the-machine" not in failed.text
    assert "This form is too large. Nothing was stored." in large.text
    assert stored(store) == []
    for answer, status in answers:
        assert answer.status_code == status, answer.url
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, answer.url
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
