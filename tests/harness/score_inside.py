"""Score answers inside inspect_ai, lm-evaluation-harness and lighteval with one judge; print what each harness makes of it.

    AUTOMEDEVAL_HARNESS=judge.yaml PYTHON tests/harness/score_inside.py LOG TASKS

LOG is inspect_ai's, TASKS a folder with a task of lm-evaluation-harness, whose data are cases.jsonl. The last line is JSON.
"""

import json
import os
import sys
from pathlib import Path


def by_inspect(log: str) -> dict:
    from inspect_ai import score
    from inspect_ai.log import read_eval_log

    from automedeval.harness import inspect_scorer

    together, whole = [], inspect_scorer.score_answers

    def counted(judge, answers):
        together.append(len(answers))
        return whole(judge, answers)

    inspect_scorer.score_answers = counted
    pattern = "(?s)^(?:Question: )?(.+?)(?:\nAnswer:)?$"
    scorer = inspect_scorer.judge(config=os.environ["AUTOMEDEVAL_HARNESS"], question_pattern=pattern)
    scored = score(read_eval_log(log), scorer, action="append", display="none")
    scores = [each.scores["judge"] for each in scored.samples]
    (metrics,) = [each.metrics for each in scored.results.scores if each.name == "judge"]
    return {
        "values": [each.value for each in scores],
        "reasons": [each.reason for each in scores],
        "explanations": [each.explanation for each in scores],
        "ids": [each.id for each in scored.samples],
        "mean": metrics["mean"].value,
        "together": together,
    }


def by_lm_eval(tasks: str) -> dict:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=tasks)
    found = simple_evaluate(
        model="dummy", tasks=["medical_answers"], task_manager=manager, log_samples=True, bootstrap_iters=0
    )
    values = [each["automedeval"] for each in found["samples"]["medical_answers"]]
    results = found["results"]["medical_answers"]
    return {"values": values, "mean": results["automedeval,none"], "rate": results["automedeval_valid_rate,none"]}


def by_lighteval() -> dict:
    from lighteval.metrics import apply_metric
    from lighteval.metrics.utils.stderr import get_stderr_function
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc

    from automedeval.harness.lighteval_metric import medical_judge

    rows = [json.loads(line) for line in Path("cases.jsonl").read_text(encoding="utf-8").splitlines()]
    docs = [
        Doc(row["question"], ["Another.", row["reference"]] if row["reference"] else [], gold_index=1, id=str(number))
        for number, row in enumerate(rows)
    ]
    responses = [ModelResponse(text=["<think>Why?</think>Rest."], text_post_processed=["Rest."]) for _ in docs]
    docs.append(Doc("No answer?", [], gold_index=0, id="none"))
    responses.append(ModelResponse(text=[]))
    values = [each["automedeval"] for each in apply_metric(responses, docs, [medical_judge])]
    mean = medical_judge.get_corpus_aggregations()["automedeval"]
    return {"values": values, "mean": mean(values), "error": get_stderr_function(mean, 10)(values[:3])}


if __name__ == "__main__":
    log, tasks = sys.argv[1:]
    found = {"inspect": by_inspect(log), "lm_eval": by_lm_eval(tasks), "lighteval": by_lighteval()}
    print("\n" + json.dumps(found))
