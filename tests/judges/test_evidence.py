"""`automedeval judge --evidence`: the passages of a store in the prompt and in the verdict, and beside the small judge."""

import re
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import case_of, read, write
from doubles.endpoint import EndpointDouble, good_answer, prompt_of
from programs import (
    ENCODER,
    failed,
    module_fixture,
    needs_encoder,
    run_command,
    run_recipe,
    succeeded,
)
from tables import each_row, rows_of

from automedeval.harness.rewards import JudgeReward, load_reward
from automedeval.judges.chat_judge import PASSAGES
from automedeval.judges.judge import load_judge
from automedeval.records import RecordError

pytestmark = needs_encoder

ROWS = rows_of(__file__)
BOOK = ROWS["book"]
ANSWERS = ROWS["answers"]
CASE = case_of("c1", ROWS["question"], ANSWERS | {"c": ""})


@module_fixture
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("books")
    book = "".join(f"# {title}\n\n{text}\n\n" for title, text in BOOK.items())
    (folder / "book.md").write_text(book)
    files = {"books": folder / "book.md", "encoder": ENCODER, "store": folder / "store"}
    succeeded(run_recipe("build_store", **files))
    return folder / "store"


def judge(output: Path, case: dict = CASE, **options: object):
    file = write(output.with_suffix(".jsonl"), [case])
    usual = {"encoder": ENCODER, "blank": "lowest", "output": output}
    return run_command("judge", file, **usual, **options)


def judged(output: Path, case: dict = CASE, **options: object) -> list[dict]:
    succeeded(judge(output, case, **options))
    return read(output / "verdicts.jsonl")


def prompts_to(endpoint: EndpointDouble) -> list[str]:
    return [prompt_of(request["body"]) for request in endpoint.asked]


def test_a_chat_is_shown_the_nearest_passages_and_the_verdict_names_them(store, tmp_path):
    with EndpointDouble(good_answer) as endpoint:
        chat = {"judge": "openai:m", "base_url": endpoint.url, "orders": "latin"}
        verdicts = judged(tmp_path / "out", **chat, evidence=store)
    prompts = prompts_to(endpoint)
    assert len(verdicts) == len(prompts) == 3
    knowledge = verdicts[0]["knowledge"]
    assert all(verdict["knowledge"] == knowledge for verdict in verdicts)
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(ENCODER), device="cpu")
    # a passage is found by its heading, too
    passages = encoder.encode([f"{title}\n{text}" for title, text in BOOK.items()])
    texts = ANSWERS | {"question": CASE["question"]}
    for query, text in texts.items():
        (found,) = (lookup["passages"] for lookup in knowledge if lookup["query"] == query)
        cosines = encoder.similarity(encoder.encode([text]), passages)[0].numpy()
        best = np.argsort(-cosines)[:PASSAGES]
        assert [passage["section"] for passage in found] == [list(BOOK)[index] for index in best]
        # Stored in bfloat16.
        scores = [passage["score"] for passage in found]
        assert scores == pytest.approx(cosines[best], abs=5e-3)
    assert knowledge[-1] == {"query": "c", "passages": []}  # an empty answer
    shown = {passage["text"] for lookup in knowledge for passage in lookup["passages"]}
    for prompt in prompts:
        evidence, _, task = prompt.partition("A patient asked a question")
        assert task
        blocks = re.findall(r"(?s)\n(~{3,})\n.*?\n(.*?)\n\1", evidence)
        assert sorted(text for _, text in blocks) == sorted(shown)


def test_a_judge_of_criteria_sees_the_passages_of_its_response(store, tmp_path):
    case = CASE | {"criteria": [{"criterion": "names the week", "points": 1}]}
    with EndpointDouble(good_answer) as endpoint:
        chat = {"judge": "openai:m", "base_url": endpoint.url, "rubric": "checklist"}
        verdicts = judged(tmp_path / "out", case, **chat, evidence=store)
    asked = [[lookup["query"] for lookup in verdict["knowledge"]] for verdict in verdicts]
    assert sorted(asked) == [["question", "a"], ["question", "b"], ["question", "c"]]
    assert all(BOOK["Methotrexate"] in prompt for prompt in prompts_to(endpoint))


def test_numbers_are_compared_with_the_store_and_move_no_score(store, tmp_path):
    (without,) = judged(tmp_path / "without", judge="small")
    (beside,) = judged(tmp_path / "beside", judge="small", evidence=store)
    assert beside["settings"] != without["settings"]
    with EndpointDouble(good_answer) as endpoint:
        chat = {"judge": "openai:m", "base_url": endpoint.url}
        (by_chat,) = judged(tmp_path / "chat", **chat, evidence=store)
    for verdict in (beside, by_chat):
        (mark,) = verdict["differs"]["a"]
        assert (mark["sentence"][1], mark["passage"][1]) == ("every day", "once a week")
        assert verdict["differs"]["b"] == []
    assert beside["expected_scores"] == without["expected_scores"]
    assert beside["expected_scores"][2] == 1, "the empty answer"
    files = {"verdicts": tmp_path / "beside", "cases": tmp_path / "beside.jsonl"}
    options = {"blank": "lowest", "encoder": "none", "output": tmp_path / "report"}
    done = run_command("report", **files, **options)
    said = "in 1 of 1 answer of a a number differs from the reference or the books: every day instead of once a week."
    assert said in done.stdout
    page = (tmp_path / "report/report.html").read_text(encoding="utf-8")
    assert "1 case in which a number differs" in page


def reward_by(file: Path, evidence: object) -> JudgeReward:
    file.write_text(f"judge: small\nencoder: {ENCODER}\nevidence: {evidence}\n")
    return load_reward(str(file))


def test_a_reward_reads_the_store(store, tmp_path):
    completions = [CASE["question"]] * 2, list(ANSWERS.values())
    reward = reward_by(tmp_path / "reward.yaml", store)
    plain = JudgeReward(load_judge("small", encoder=str(ENCODER)))
    assert reward(*completions) == plain(*completions)
    with pytest.raises(RecordError, match="nowhere: no knowledge store"):
        reward_by(tmp_path / "wrong.yaml", "nowhere")


@each_row("options, said")
def test_what_cannot_be_shown_is_one_line(store, tmp_path, options, said):
    failed(judge(tmp_path / "out", **{"evidence": store} | options), said)
    assert not (tmp_path / "out").exists()
