"""`automedeval draft-criteria` by its command: trusted answers, an endpoint, a checkpoint; resume and bad input."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer, error
from doubles.tiny_model import build_tiny_model
from programs import ENCODER, error_line, kill_once, lines_in, needs_encoder, run_command
from sentence_transformers import SentenceTransformer

from automedeval.dataset.criteria_drafts import read_criterion
from automedeval.models.base import Answer

pytestmark = needs_encoder

GUIDE = {
    "Ibuprofen": "Take ibuprofen with food. Never take ibuprofen ~~~ together with a blood thinner.",
    "Tetanus": "After a dirty wound a tetanus booster is needed if the last one was more than five years ago.",
    "Fever": "A baby younger than three months with a fever is seen by a doctor at once.",
}
CASES = [
    {"id": "pain", "question": "How do I take ibuprofen?", "reference": "Take it with food. Is it safe?"},
    {"id": "passport", "question": "Where do I renew my passport?", "responses": []},
    {"id": "wound", "question": "I have a dirty wound. Do I need a tetanus booster?", "reference": " "},
]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.fixture
def books(tmp_path: Path) -> Path:
    (tmp_path / "books").mkdir()
    text = "# Guide\n\n" + "".join(f"## {name}\n\n{said}\n\n" for name, said in GUIDE.items())
    (tmp_path / "books" / "guide.md").write_text(text)
    return tmp_path / "books"


def draft(cases: list[dict], output: Path, *more: object) -> tuple[subprocess.CompletedProcess, list[dict]]:
    file = write(output.with_suffix(".jsonl"), cases)
    done = run_command("draft-criteria", file, "--output", output, "--encoder", ENCODER, *more)
    return done, read(output / "drafts.jsonl") if (output / "drafts.jsonl").exists() else []


def shown_in(body: dict) -> dict[str, str]:
    """Return the passages of a prompt by their ids."""
    return {
        name: text
        for name, _, text in re.findall(r"\nPassage (\w+):\n(~+)\n(.*?)\n\2\n", body["messages"][-1]["content"], re.S)
    }


def says(body: dict) -> dict:
    """Say one thing, then what must not be said, then that there is nothing more; of the wound cite what was not shown."""
    prompt, (name, *_) = body["messages"][-1]["content"], shown_in(body)
    said = [("says to eat with it", "must_say"), ("says that a blood thinner goes with it", "must_not_say")]
    if "wound" in prompt.split("Passage")[0]:
        return answer('{"criterion": "asks for the last booster", "kind": "must_say", "passage": "0123456789ab"}')
    left = [each for each in said if each[0] not in prompt]
    text, kind = left[0] if left else ("", "nothing_more")
    return answer(json.dumps({"criterion": text, "kind": kind, "passage": name}))


def test_the_statements_of_a_trusted_answer_are_drafted_and_cite_the_nearest_passage(
    tmp_path: Path, books: Path
) -> None:
    done, records = draft(CASES, tmp_path / "out", "--books", books)
    assert done.returncode == 0, done.stderr
    assert [each["case_id"] for each in records] == ["pain", "passport", "wound"]
    assert [each["criterion"] for each in records[0]["criteria"]] == ["Take it with food."]
    assert {each["points"] for each in records[0]["criteria"]} == {1.0}
    encoder = SentenceTransformer(str(ENCODER), device="cpu")
    texts = [f"{name}\n{said}" for name, said in GUIDE.items()]
    cosines = encoder.similarity(encoder.encode(["Take it with food."]), encoder.encode(texts))[0].tolist()
    nearest = list(GUIDE.values())[cosines.index(max(cosines))]
    cited = records[0]["criteria"][0]["citation"]
    assert (cited["text"], bool(cited["passage"])) == ((nearest, True) if max(cosines) >= 0.4 else ("", False))
    assert [each["reason"] for each in records] == [None, "no trusted answer", "no trusted answer"]
    assert "3 cases → 1 drafted criteria: 1 to say, 0 not to say" in done.stdout
    assert "cases without a criterion, 2: no trusted answer\nleft out, 1: question\n" in done.stdout


def test_statements_that_are_left_out_are_counted(tmp_path: Path) -> None:
    answer = "Take it with food. Drink some water. Take it with food! Is it safe? Rest for a day. Call a doctor."
    done, records = draft([CASES[0] | {"reference": answer}], tmp_path / "out", "--most", 2)
    assert [each["criterion"] for each in records[0]["criteria"]] == ["Take it with food.", "Drink some water."]
    assert records[0]["invalid"] == ["repeats a criterion", "question", "beyond --most 2", "beyond --most 2"]
    assert "left out, 2: beyond --most 2" in done.stdout


def test_an_endpoint_drafts_from_the_passages_that_it_cites(tmp_path: Path, books: Path) -> None:
    with EndpointDouble(says) as endpoint:
        given = ("--books", books, "--drafter", "openai:m", "--base_url", endpoint.url)
        counted, none = draft(CASES, tmp_path / "out", *given, "--dry_run", "true", "--price_in", 1, "--price_out", 9)
        assert (endpoint.asked, none) == ([], [])
        assert "3 cases, 1 without a passage, at most 16 prompts" in counted.stdout
        assert re.search(
            r", about \d\.\d\d in cost$", counted.stdout
        )  # later prompts are longer than those that are counted
        done, records = draft(CASES, tmp_path / "out", *given)
        assert done.returncode == 0, done.stderr
        bodies = [each["body"] for each in endpoint.asked]
        asked = len(bodies)
        _, same = draft(CASES, tmp_path / "out", *given)
        assert (len(endpoint.asked), same) == (asked, records)
        other = error_line(draft(CASES, tmp_path / "out", *given, "--most", 2)[0])
    assert "with other weights, wording or settings" in other
    pain, passport, wound = records
    assert [(each["criterion"], each["points"]) for each in pain["criteria"]] == [
        ("says to eat with it", 1.0),
        ("says that a blood thinner goes with it", -1.0),
    ]
    assert {each["citation"]["text"] for each in pain["criteria"]} == {GUIDE["Ibuprofen"]}
    assert pain["criteria"][0]["citation"]["source"] == "Guide, Ibuprofen"
    assert (passport["criteria"], passport["reason"]) == ([], "no passage")
    assert (wound["criteria"], wound["invalid"]) == ([], ["there is no passage '0123456789ab'"])
    assert len(bodies) == 4  # three about ibuprofen, one about the wound, none about the passport
    for body in bodies:
        schema = body["response_format"]["json_schema"]["schema"]["properties"]
        assert schema["passage"]["enum"] == list(shown_in(body))
        assert schema["kind"]["enum"] == ["must_say", "must_not_say", "nothing_more"]
    assert any(f"~~~~\nIbuprofen\n{GUIDE['Ibuprofen']}\n~~~~" in body["messages"][-1]["content"] for body in bodies)
    for line in (
        "3 cases → 2 drafted criteria: 1 to say, 1 not to say; 1 passages cited",
        "cases without a criterion, 1: no passage",
        "left out, 1: there is no passage '0123456789ab'",
    ):
        assert line in done.stdout


def test_what_an_endpoint_does_not_answer_is_asked_again(tmp_path: Path, books: Path) -> None:
    broken = [True]

    def script(body: dict) -> dict:
        return (
            error(500) if broken[0] and "wound" in body["messages"][-1]["content"].split("Passage")[0] else says(body)
        )

    with EndpointDouble(script) as endpoint:
        given = ("--books", books, "--drafter", "openai:m", "--base_url", endpoint.url, "--max_retries", 0)
        done, records = draft(CASES, tmp_path / "out", *given)
        assert "1 requests not answered" in error_line(done)
        assert [each["case_id"] for each in records] == ["pain", "passport"]
        broken[0], asked = False, len(endpoint.asked)
        done, records = draft(CASES, tmp_path / "out", *given)
        assert done.returncode == 0, done.stderr
        assert [each["case_id"] for each in records] == ["pain", "passport", "wound"]
        assert len(endpoint.asked) == asked + 1


def test_a_checkpoint_is_kept_to_kinds_and_ids_and_killed_goes_on_with_the_same_bytes(
    tmp_path: Path, books: Path
) -> None:
    folder = build_tiny_model(tmp_path / "tiny")
    cases = [{"id": f"c{n}", "question": f"How do I take ibuprofen, {n}?"} for n in range(66)]
    few = ("--max_new_tokens", 4, "--most", 2, "--passages", 1, "--batch_tokens", 20_000)
    given = ("--books", books, "--drafter", folder, *few)
    done, whole = draft(cases, tmp_path / "whole", *given)
    assert done.returncode == 0, done.stderr
    reasons = {why for each in whole for why in each["invalid"]}
    assert reasons <= {"the answer was cut off at its token limit", "repeats a criterion"} | {
        "no JSON object with a criterion at the end of the answer"
    }
    code = "import sys; sys.argv[0] = 'automedeval'; from automedeval.commands.console import main; main()"
    command = [
        "-c",
        code,
        "draft-criteria",
        tmp_path / "whole.jsonl",
        "--output",
        tmp_path / "cut",
        "--encoder",
        ENCODER,
    ]
    kill_once(lambda: lines_in(tmp_path / "cut" / "drafts.jsonl") > 0, *command, *given)
    draft(cases, tmp_path / "cut", *given)
    assert (tmp_path / "cut/drafts.jsonl").read_bytes() == (tmp_path / "whole/drafts.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"criterion": "says  so", "kind": "must_say", "passage": "p1"}', ("says so", 1.0)),
        ('First. {"criterion": "x y", "kind": "must_not_say", "passage": "p1"}', ("x y", -1.0)),
        ('{"criterion": "", "kind": "nothing_more", "passage": "p1"}', None),
        ('{"criterion": " ", "kind": "must_say", "passage": "p1"}', "no JSON object"),
        ('{"criterion": ["x"], "kind": "must_say", "passage": "p1"}', "no JSON object"),
        ('{"criterion": "x", "kind": ["must_say"], "passage": "p1"}', "the kind"),
        ('{"criterion": "x", "kind": "may_say", "passage": "p1"}', "the kind 'may_say'"),
        ('{"criterion": "x", "kind": "must_say", "passage": {"p1": 1}}', "there is no passage"),
        ('{"criterion": "x", "kind": "must_say"}', "there is no passage 'None'"),
        ("I cannot.", "no JSON object"),
        ("", "no JSON object"),
    ],
)
def test_how_an_answer_is_read(text: str, said: object) -> None:
    class Passage:
        id, book, section, page, text = "p1", "Guide", "", 3, "Said."

    read = read_criterion(Answer(text), {"p1": Passage})
    if isinstance(said, tuple):
        assert (read["criterion"], read["points"]) == said
        assert read["citation"] == {"passage": "p1", "source": "Guide, page 3", "text": "Said."}
    else:
        assert read is said or read.startswith(said)
    assert (
        read_criterion(Answer(f"{text} and", truncated=True), {"p1": Passage})
        == "the answer was cut off at its token limit"
    )


def test_what_does_not_fit_is_one_line(tmp_path: Path, books: Path) -> None:
    out = tmp_path / "out"
    assert "needs --books" in error_line(draft(CASES, out, "--drafter", "openai:m")[0])
    assert "no case has a trusted answer" in error_line(draft(CASES[1:], out)[0])
    assert "no such file" in error_line(draft(CASES, out, "--books", tmp_path / "none")[0])
    assert "--near" in error_line(draft(CASES, out, "--near", 2)[0])
    assert draft(CASES, out, "--books", books)[0].returncode == 0
    changed = [CASES[0] | {"reference": "Take it."}, *CASES[1:]]
    before = (out / "drafts.jsonl").read_bytes()
    assert "changed after 'reference' drafted criteria for it" in error_line(draft(changed, out, "--books", books)[0])
    assert (out / "drafts.jsonl").read_bytes() == before
    (books / "guide.md").write_text("# Guide\n\nNothing of it is left.\n")
    assert "with other weights" in error_line(draft(CASES, out, "--books", books)[0])
