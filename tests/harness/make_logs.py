"""Write logs of lm-evaluation-harness and inspect_ai, each by its own library, without a model or a network.

    PYTHON tests/harness/make_logs.py FOLDER

PYTHON is that of an environment with lm_eval 0.4.13 and inspect_ai 0.3.285. Both ask the same three questions.
The logs of inspect_ai in FOLDER/odd are of tasks that are seldom met: choices, conversations, images, errors.
"""

import json
import sys
from pathlib import Path

import yaml

GIVEN = yaml.safe_load(
    (Path(__file__).parents[1] / "data/harness/make_logs.yaml").read_text(encoding="utf-8")
)
QUESTIONS = GIVEN["questions"]


def lm_eval_log(folder: Path) -> None:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    data = folder / "questions.jsonl"
    data.write_text(
        "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in QUESTIONS),
        encoding="utf-8",
    )
    (folder / "tasks").mkdir()
    task = GIVEN["medtext"] | {"dataset_kwargs": {"data_files": {"test": str(data)}}}
    (folder / "tasks/medtext.yaml").write_text(json.dumps(task), encoding="utf-8")  # JSON is YAML
    tracker = EvaluationTracker(output_path=str(folder / "lm_eval"))
    tasks = TaskManager(include_path=str(folder / "tasks"))
    results = simple_evaluate(
        model="dummy", tasks=["medtext"], task_manager=tasks, log_samples=True, evaluation_tracker=tracker, bootstrap_iters=0
    )  # fmt: skip
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    tracker.save_results_samples(task_name="medtext", samples=samples["medtext"])


def _inspect(
    folder: Path, samples: list, outputs: list, solver: object = None, **options: object
) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate

    made = []
    for each in outputs:  # a text or its parts; the fields of an output; an output
        if isinstance(each, dict):
            each = ModelOutput(model="m", **each)
        made.append(
            each
            if isinstance(each, ModelOutput)
            else ModelOutput.from_content("mockllm/model", each)
        )
        # without it inspect_ai counts tokens with a tokenizer that it gets from the network
        made[-1].usage = ModelUsage()
    eval(
        Task(dataset=samples, solver=solver or generate()), log_dir=str(folder), display="none", max_samples=1,
        model=get_model("mockllm/model", custom_outputs=made, memoize=False),
        **{"log_format": "json"} | options,
    )  # fmt: skip


def inspect_log(folder: Path) -> None:
    from inspect_ai.dataset import Sample

    samples = [
        Sample(input=f"Question: {q}\nAnswer:", target=a, id=n)
        for n, (q, a) in enumerate(QUESTIONS)
    ]
    answers = [f"An answer, number {number}." for number in range(6)]
    _inspect(folder / "inspect-eval", samples, answers, epochs=2, log_format="eval")
    _inspect(folder / "inspect-json", samples, answers, epochs=2)
    # the third question finds no answer: the run ends with an error
    _inspect(folder / "inspect-error", samples, answers[:2])


def odd_inspect_logs(folder: Path) -> None:
    from inspect_ai.dataset import Sample
    from inspect_ai.log import ProvenanceData, invalidate_samples, read_eval_log, write_eval_log
    from inspect_ai.solver import multiple_choice, solver

    @solver
    def changes():
        async def solve(state, generate):
            state = await generate(state)
            if "wrong" in state.output.completion:
                raise RuntimeError("wrong")
            state.output.completion = state.output.completion.removeprefix("Draft: ")
            return state

        return solve

    for name, solvers, options in (
        ("choices", multiple_choice(), {}),
        ("mixed", changes(), {"fail_on_error": False}),
    ):
        task = GIVEN["inspect"][name]
        _inspect(
            folder / name,
            [Sample(**each) for each in task["samples"]],
            task["said"],
            solvers,
            **options,
        )
    (log,) = (folder / "mixed").glob("*.json")
    whole = read_eval_log(str(log))
    uuids = [each.uuid for each in whole.samples if each.id == "invalid"]
    write_eval_log(
        invalidate_samples(whole, uuids, ProvenanceData(author="somebody", reason="a fault")),
        str(log),
    )


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    lm_eval_log(target)
    inspect_log(target)
    odd_inspect_logs(target / "odd")
