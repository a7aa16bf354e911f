"""Write logs of lm-evaluation-harness, inspect_ai and lighteval, each by its own library, without a model or a network.

    PYTHON tests/harness/make_logs.py FOLDER

PYTHON is that of an environment with lm_eval 0.4.13, inspect_ai 0.3.285 and lighteval 0.13.0. All ask the same
three questions. lighteval's own `EvaluationTracker` writes its details; its pipeline is not run, because to import its tasks
downloads a file.
"""

import json
import sys
from pathlib import Path

QUESTIONS = [
    ("What lowers a fever?", "Acetaminophen lowers a fever."),
    ("How is a nosebleed stopped?", "Pinch the soft part of the nose and lean forward."),
    ("Is ibuprofen safe in late pregnancy?", "No. Avoid it from week 20 on."),
]
TASK = """\
task: medtext
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n\\n"]}}
filter_list:
  - {{name: whole, filter: [{{function: take_first}}]}}
  - {{name: word, filter: [{{function: regex, regex_pattern: "(\\\\w+)"}}, {{function: take_first}}]}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def lm_eval_log(folder: Path) -> None:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    data = folder / "questions.jsonl"
    data.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in QUESTIONS), encoding="utf-8")
    (folder / "tasks").mkdir()
    (folder / "tasks" / "medtext.yaml").write_text(TASK.format(data=data), encoding="utf-8")
    tracker = EvaluationTracker(output_path=str(folder / "lm_eval"))
    found = simple_evaluate(
        model="dummy", tasks=["medtext"], task_manager=TaskManager(include_path=str(folder / "tasks")), log_samples=True,
        evaluation_tracker=tracker, bootstrap_iters=0,
    )  # fmt: skip
    samples = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=samples)
    for task, lines in samples.items():
        tracker.save_results_samples(task_name=task, samples=lines)


def inspect_log(folder: Path) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def write(kind: str, folder: Path, answers: int, epochs: int) -> None:
        outputs = [
            ModelOutput.from_content("mockllm/model", f"An answer, number {number}.") for number in range(answers)
        ]
        for output in outputs:
            # without it inspect_ai counts tokens with a tokenizer that it gets from the network
            output.usage = ModelUsage()
        eval(
            Task(dataset=[Sample(input=f"Question: {q}\nAnswer:", target=a, id=n) for n, (q, a) in enumerate(QUESTIONS)]),
            model=get_model("mockllm/model", custom_outputs=outputs, memoize=False), epochs=epochs, log_dir=str(folder),
            log_format=kind, display="none", max_samples=1,
        )  # fmt: skip

    write("eval", folder / "inspect-eval", 6, 2)
    write("json", folder / "inspect-json", 6, 2)
    write("json", folder / "inspect-error", 2, 1)  # the third question finds no answer, and the run ends with an error


def lighteval_log(folder: Path) -> None:
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.models.dummy.dummy_model import DummyModelConfig
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc

    tracker = EvaluationTracker(output_dir=str(folder / "lighteval"), save_details=True)
    tracker.general_config_logger.log_model_info(model_config=DummyModelConfig(cache_dir=str(folder / "cache")))
    logger = tracker.details_logger
    for number, (q, a) in enumerate(QUESTIONS):
        doc = Doc(
            f"Question: {q}\nAnswer:", ["Another answer.", a], gold_index=1, task_name="medtext|0", id=str(number)
        )
        response = ModelResponse(text=["<think>Why?</think>A baseline."], text_post_processed=["A baseline."])
        # not logger.log, whose digest of a text fails with xxhash 4
        logger.details["medtext|0"].append(logger.Detail(doc, response, {"exact_match": 0.0}))
    tracker.save()


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    lm_eval_log(target)
    inspect_log(target)
    lighteval_log(target)
