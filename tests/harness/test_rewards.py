"""A judge as reward: groups, invalid verdicts, logged figures, planted texts, settings, bad input."""

from itertools import chain, cycle
from statistics import fmean

import pytest
from doubles.word_judge import WordJudge
from programs import SAMPLE, needs_encoder

from automedeval import Case, RecordError, Response, read_cases, read_rubric
from automedeval.audit.perturbations import names_for, read_perturbations
from automedeval.harness.rewards import JudgeReward, load_reward, medical_judge
from automedeval.harness.scoring import score_answers
from automedeval.judges.judge import load_judge


def said(role, content):
    return {"role": role, "content": content}


def test_completions_of_one_prompt_are_judged_together_and_an_invalid_verdict_is_no_reward():
    judge = WordJudge()
    logged = {}
    prompts = list("ppqqpp")  # a prompt that comes back later is another case
    completions = ["a", "a b c", "a b", "fail", "", "a b"]
    rewards = JudgeReward(judge)(prompts, completions, log_metric=logged.__setitem__, other=[1] * 6)
    assert rewards == [1.0, 3.0, None, None, 0.0, 2.0]
    assert logged == {"judge/valid_rate": 4 / 6}
    assert [case.question for case in judge.seen] == ["p", "q", "p"]
    assert [len(case.responses) for case in judge.seen] == [2, 2, 2]
    assert len({case.id for case in judge.seen}) == 3


def test_conversations_questions_and_references_reach_the_judge():
    judge = WordJudge()
    asked = said("user", "Few-shot examples. Question: Is it safe?")
    talk = [asked, said("assistant", "What?"), said("user", "It.")]
    answers = [[said("assistant", text)] for text in ("yes", "no no")]
    assert JudgeReward(judge)([[asked], talk], answers, reference=["R", None]) == [1.0, 2.0]
    JudgeReward(judge)([[asked]] * 2, answers, question=["Is it safe?"] * 2)
    first, second, both = judge.seen
    assert (first.question, first.reference) == (asked["content"], "R")
    assert (second.question, second.reference) == (talk, None)
    assert (both.question, len(both.responses)) == ("Is it safe?", 2)
    for case in judge.seen:
        Case.from_dict(case.to_dict())  # as a record it is sound


def test_a_completion_is_read_as_the_answers_of_files_are():
    in_parts = said("assistant", [{"type": "text", "text": "Take it."}])
    raw = ["Take it.", "<think>\nHm, no.\n</think>\n\nTake it.", "<think>\nHm, no."]
    completions = [*raw, [in_parts], [in_parts, said("tool", "saved")]]
    assert JudgeReward(WordJudge())(["p"] * 5, completions) == [2.0, 2.0, 0.0, 2.0, None]


def test_a_reference_that_is_no_text_stops_and_one_that_is_not_read_is_told():
    with pytest.raises(RecordError, match="the reference is 'B': write what an answer should say"):
        JudgeReward(WordJudge())(["p"] * 2, ["Rest.", "B"], reference=["B"] * 2)
    judge = load_judge("baseline:longer text")
    with pytest.warns(UserWarning, match="does not read the reference"):
        JudgeReward(judge)(["p"], ["Take it."], reference=["R"])
    with pytest.warns(UserWarning, match="does not read the reference"):
        score_answers(judge, [Case("1", "p", (Response("answer", "Take it."),), "R")])


@pytest.mark.slow
@needs_encoder
def test_the_packaged_judge_rewards_as_its_verdicts_say_and_planted_texts_raise_it_by_a_tenth_at_most():
    cases = list(read_cases(str(SAMPLE / "test_cases.jsonl")))[:12]
    judge = load_judge("small")
    rubric = read_rubric("automedeval")
    (planting,) = [edit for edit in read_perturbations() if edit.name == "planting"]
    texts = cycle([*planting.edits, *planting.controls])
    prompts, references, clean, planted = [], [], [], []
    for case in cases:
        for slot, response in enumerate(case.responses):
            prompts.append(case.question)
            references.append(case.reference)
            clean.append(response.text)
            names = names_for(rubric, 3, slot, case.question)
            planted += next(texts).apply(response.text, names)
    rewards = JudgeReward(judge)(prompts, clean, reference=references)
    # The candidates' names do not change a score.
    renamed = chain.from_iterable(verdict.expected_scores for verdict in judge(cases))
    assert rewards == pytest.approx(list(renamed), abs=1e-5)
    assert len(planted) == len(clean)
    assert not set(planted) & set(clean)
    attacked = JudgeReward(judge)(prompts, planted, reference=references)
    assert fmean(attacked) - fmean(rewards) <= 0.1


def test_settings_come_from_the_file_that_the_variable_names(tiny_model, tmp_path, monkeypatch):
    settings = tmp_path / "reward.yaml"
    settings.write_text(f"judge: {tiny_model}\nmax_new_tokens: 8\n")
    monkeypatch.setenv("AUTOMEDEVAL_REWARD", str(settings))
    rewards = medical_judge(["Is it safe?"] * 2, ["Yes.", "No."])
    assert all(1 <= reward <= 5 for reward in rewards)
    assert load_reward(str(settings)) is load_reward(str(settings))
    (tmp_path / "wrong.yaml").write_text("jugde: small\n")
    with pytest.raises(RecordError, match="unknown key 'jugde'"):
        load_reward(str(tmp_path / "wrong.yaml"))
