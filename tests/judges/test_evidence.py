"""`automedeval judge --evidence`: the passages of a store in the prompt and in the verdict, and beside the small judge."""

import re
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, good_answer
from programs import ENCODER, error_line, flags, needs_encoder, run_command, run_recipe, succeeded
from tables import rows_of

from automedeval.harness.rewards import JudgeReward, load_reward
from automedeval.judges.chat_judge import PASSAGES
from automedeval.judges.judge import load_judge
from automedeval.records import RecordError

pytestmark = needs_encoder

BOOK = rows_of(__file__)["book"]
DAILY, WEEKLY = (
    f"Take methotrexate tablets for arthritis {often}." for often in ("every day", "once a week")
)
RESPONSES = [
    {"model": model, "text": text} for model, text in (("a", DAILY), ("b", WEEKLY), ("c", ""))
]
CASE = {
    "id": "c1",
    "question": "How do I take methotrexate for my arthritis, and what should I do when I forget it?",
    "responses": RESPONSES,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("books"), BOOK)


def build(folder: Path, book: dict[str, str]) -> Path:
    (folder / "book.md").write_text(
        "".join(f"# {title}\n\n{text}\n\n" for title, text in book.items())
    )
    files = flags(books=folder / "book.md", encoder=ENCODER, store=folder / "store")
    succeeded(run_recipe("build_store", *files))
    return folder / "store"


def judge(output: Path, *more: object, case: dict = CASE):
    file = write(output.with_suffix(".jsonl"), [case])
    done = run_command(
        "judge", file, "--output", output, "--encoder", ENCODER, "--blank", "lowest", *more
    )
    return done, read(output / "verdicts.jsonl") if (output / "verdicts.jsonl").exists() else []


def test_a_chat_is_shown_the_nearest_passages_and_the_verdict_names_them(store, tmp_path):
    with EndpointDouble(good_answer) as endpoint:
        chat = ("--judge", "openai:m", "--base_url", endpoint.url, "--orders", "latin")
        done, verdicts = judge(tmp_path / "out", *chat, "--evidence", store)
        assert done.returncode == 0, done.stderr
        prompts = [each["body"]["messages"][-1]["content"] for each in endpoint.asked]
        other = build(tmp_path, {"Aspirin": BOOK["Aspirin"]})
        for changed in ((), ("--evidence", other)):  # another judge
            done = judge(tmp_path / "out", *chat, *changed)[0]
            assert "choose another --output" in error_line(done)
        plain = judge(tmp_path / "plain", *chat)[1]
    assert len(verdicts) == len(prompts) == 3
    assert all(each["knowledge"] == verdicts[0]["knowledge"] for each in verdicts)
    assert all("knowledge" not in each for each in plain)
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(ENCODER), device="cpu")
    # a passage is found by its heading, too
    passages = encoder.encode([f"{title}\n{text}" for title, text in BOOK.items()])
    asked = {each["model"]: each["text"] for each in RESPONSES} | {"question": CASE["question"]}
    for lookup in verdicts[0]["knowledge"]:
        text, found = asked[lookup["query"]], lookup["passages"]
        if not text:
            assert found == []
            continue
        cosines = encoder.similarity(encoder.encode([text]), passages)[0].numpy()
        best = np.argsort(-cosines)[:PASSAGES]
        assert [passage["section"] for passage in found] == [list(BOOK)[index] for index in best]
        # Stored in bfloat16.
        scores = [passage["score"] for passage in found]
        assert scores == pytest.approx(cosines[best], abs=5e-3)
    shown = {passage["text"] for each in verdicts[0]["knowledge"] for passage in each["passages"]}
    for prompt in prompts:
        evidence, _, task = prompt.partition("A patient asked a question")
        assert task
        blocks = [block for _, block in re.findall(r"\n(~{3,})\n(.*?)\n\1", evidence, re.S)]
        assert (len(blocks), {block.partition("\n")[2] for block in blocks}) == (len(shown), shown)


def test_a_judge_of_criteria_sees_the_passages_of_its_response(store, tmp_path):
    case = CASE | {
        "criteria": [
            {"criterion": "names the week", "points": 1},
            {"criterion": "is kind", "points": 1},
        ]
    }
    with EndpointDouble(good_answer) as endpoint:
        chat = ("--judge", "openai:m", "--base_url", endpoint.url, "--rubric", "checklist")
        done, verdicts = judge(tmp_path / "out", *chat, "--evidence", store, case=case)
        prompts = [each["body"]["messages"][-1]["content"] for each in endpoint.asked]
    assert done.returncode == 0, done.stderr
    assert len(verdicts) == 3
    (of_a,) = (verdict for verdict in verdicts if verdict["order"] == [0])
    assert [each["query"] for each in of_a["knowledge"]] == ["question", "a"]
    assert all(BOOK["Methotrexate"] in prompt for prompt in prompts)


def test_numbers_are_compared_with_the_store_and_move_no_score(store, tmp_path):
    _, (without,) = judge(tmp_path / "without", "--judge", "small")
    done, (beside,) = judge(tmp_path / "beside", "--judge", "small", "--evidence", store)
    assert done.returncode == 0, done.stderr
    assert beside["settings"] != without["settings"]
    with EndpointDouble(good_answer) as endpoint:
        chat = ("--judge", "openai:m", "--base_url", endpoint.url, "--evidence", store)
        (by_chat,) = judge(tmp_path / "chat", *chat)[1]
    for verdict in (beside, by_chat):
        (mark,) = verdict["differs"]["a"]
        assert (mark["sentence"][1], mark["passage"][1]) == ("every day", "once a week")
        assert verdict["differs"]["b"] == []
    assert beside["expected_scores"] == without["expected_scores"]
    assert beside["expected_scores"][2] == 1, "the empty answer"
    files = flags(verdicts=tmp_path / "beside", cases=tmp_path / "beside.jsonl", blank="lowest")
    done = run_command("report", *files, "--encoder", "none", *flags(output=tmp_path / "report"))
    said = "Read first: in 1 of 1 answers of a a number differs from the books: every day for once a week."
    assert said in done.stdout
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "1 case in which a number differs" in page


def reward_file(folder: Path, **settings: object) -> Path:
    file = folder / "reward.yaml"
    file.write_text(
        f"judge: small\nencoder: {ENCODER}\n"
        + "".join(f"{key}: {settings[key]}\n" for key in settings)
    )
    return file


def test_a_reward_reads_the_store(store, tmp_path):
    completions = [CASE["question"]] * 2, [each["text"] for each in CASE["responses"][:2]]
    reward = load_reward(str(reward_file(tmp_path, evidence=store)))
    plain = JudgeReward(load_judge("small", encoder=str(ENCODER)))
    assert reward(*completions) == plain(*completions)
    (tmp_path / "wrong").mkdir()
    with pytest.raises(RecordError, match="nowhere: no knowledge store"):
        load_reward(str(reward_file(tmp_path / "wrong", evidence="nowhere")))


@pytest.mark.parametrize(
    ("more", "said"), rows_of(__file__)["test_what_cannot_be_shown_is_one_line"]
)
def test_what_cannot_be_shown_is_one_line(store, tmp_path, more, said):
    assert said in error_line(judge(tmp_path / "out", "--evidence", store, *more)[0])
    assert not (tmp_path / "out").exists()
