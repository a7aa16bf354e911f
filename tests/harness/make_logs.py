"""Write logs of lm-evaluation-harness, inspect_ai and lighteval, each by its own library, without a model or a network.

    PYTHON tests/harness/make_logs.py FOLDER

PYTHON is that of an environment with lm_eval 0.4.13, inspect_ai 0.3.285 and lighteval 0.13.0. All ask the same
three questions. lighteval's own `EvaluationTracker` writes its details; its pipeline is not run, because to import its tasks
downloads a file. The logs in FOLDER/odd are of tasks that are seldom met: targets of every kind, likelihoods, repeats,
examples, choices, conversations, tools, images, errors, limits.
"""

import json
import sys
from pathlib import Path

import yaml

GIVEN = yaml.safe_load((Path(__file__).parents[1] / "data" / "harness" / "make_logs.yaml").read_text(encoding="utf-8"))
QUESTIONS, TASKS = GIVEN["questions"], GIVEN["tasks"]
ROWS = [{"question": f"Question number {number}?"} | row for number, row in enumerate(GIVEN["rows"])]


def lm_eval_log(folder: Path) -> None:
    data = folder / "questions.jsonl"
    data.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in QUESTIONS), encoding="utf-8")
    (folder / "tasks").mkdir()
    task = GIVEN["medtext"] | {"dataset_kwargs": {"data_files": {"test": str(data)}}}
    (folder / "tasks" / "medtext.yaml").write_text(json.dumps(task), encoding="utf-8")  # JSON is YAML
    _lm_eval("dummy", ["medtext"], folder)


def odd_lm_eval_logs(folder: Path) -> None:
    from lm_eval.api.model import LM

    class Parrot(LM):
        """Answer with the end of the prompt and the number of the request."""

        tokenizer_name = "parrot"

        def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
            return [f"On {each.args[0][-30:]} I say {number}" for number, each in enumerate(requests)]

        def loglikelihood(self, requests: list, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            return [(-1.0, False) for _ in requests]

        def loglikelihood_rolling(self, requests: list, disable_tqdm: bool = False) -> list[float]:
            return [-2.0 for _ in requests]

    (folder / "tasks").mkdir(parents=True)
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    for name, more in TASKS.items():
        task = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}}
        task |= {"test_split": "test", "doc_to_text": "Question: {{question}}\nAnswer:"}
        if "output_type" not in more:
            task |= {"output_type": "generate_until", "generation_kwargs": {"until": ["\n\n"]}}
            task["metric_list"] = [{"metric": "bypass", "aggregation": "bypass", "higher_is_better": True}]
        (folder / "tasks" / f"{name}.yaml").write_text(json.dumps(task | more), encoding="utf-8")
    _lm_eval(Parrot(), list(TASKS), folder)


def _lm_eval(model: object, tasks: list[str], folder: Path) -> None:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    tracker = EvaluationTracker(output_path=str(folder / "lm_eval"))
    results = simple_evaluate(
        model=model, tasks=tasks, task_manager=TaskManager(include_path=str(folder / "tasks")), log_samples=True,
        evaluation_tracker=tracker, bootstrap_iters=0,
    )  # fmt: skip
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task, lines in samples.items():
        tracker.save_results_samples(task_name=task, samples=lines)


def _inspect(folder: Path, samples: list, outputs: list, solver: object = None, **options: object) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate

    outputs = [
        each if isinstance(each, ModelOutput) else ModelOutput.from_content("mockllm/model", each) for each in outputs
    ]
    for output in outputs:
        # without it inspect_ai counts tokens with a tokenizer that it gets from the network
        output.usage = ModelUsage()
    eval(
        Task(dataset=samples, solver=solver or generate()), log_dir=str(folder), display="none", max_samples=1,
        model=get_model("mockllm/model", custom_outputs=outputs, memoize=False),
        **{"log_format": "json"} | options,
    )  # fmt: skip


def inspect_log(folder: Path) -> None:
    from inspect_ai.dataset import Sample

    samples = [Sample(input=f"Question: {q}\nAnswer:", target=a, id=n) for n, (q, a) in enumerate(QUESTIONS)]
    answers = [f"An answer, number {number}." for number in range(6)]
    _inspect(folder / "inspect-eval", samples, answers, epochs=2, log_format="eval")
    _inspect(folder / "inspect-json", samples, answers, epochs=2)
    _inspect(
        folder / "inspect-error", samples, answers[:2]
    )  # the third question finds no answer: the run ends with an error


def odd_inspect_logs(folder: Path) -> None:
    from inspect_ai.dataset import Sample
    from inspect_ai.log import ProvenanceData, invalidate_samples, read_eval_log, write_eval_log
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageUser,
        ContentImage,
        ContentReasoning,
        ContentText,
        ModelOutput,
    )
    from inspect_ai.solver import generate, multiple_choice, solver, use_tools, user_message
    from inspect_ai.tool import tool

    @tool
    def adder():
        async def execute(x: int, y: int) -> int:
            """Add.

            Args:
                x: a number
                y: a number
            """
            return x + y

        return execute

    @solver
    def changes():
        async def solve(state, generate):
            state = await generate(state)
            if "wrong" in state.output.completion:
                raise RuntimeError("wrong")
            state.output.completion = state.output.completion.removeprefix("Draft: ")
            return state

        return solve

    image = ContentImage(image="data:image/png;base64,iVBORw0KGgo=")
    call = ModelOutput.for_tool_call("mockllm/model", "adder", {"x": 1, "y": 1})
    parts = ModelOutput.from_content("mockllm/model", [ContentReasoning(reasoning="Hm."), ContentText(text="It is 2.")])
    chat = [ChatMessageSystem(content="Be kind."), ChatMessageUser(content="Which two?")]
    two = [ChatCompletionChoice(message=ChatMessageAssistant(content=text)) for text in ("First.", "Second.")]

    _inspect(
        folder / "choices",
        [
            Sample(id="one", input="Which one?", choices=["Ibuprofen", "Coffee"], target="A"),
            Sample(id="two", input=chat, choices=["Rest", "Run", "Water"], target=["A", "C"]),
            Sample(id="text", input="Which word?", choices=["Rest", "Run"], target="Rest"),
        ],
        ["ANSWER: B", "ANSWER: A", "Say ANSWER: A"],
        multiple_choice(),
    )
    _inspect(
        folder / "mixed",
        [
            Sample(id="draft", input="A draft?", target="x"),
            Sample(id="error", input="An error?", target="x"),
            Sample(id="empty", input="Nothing?", target=["one", "two"]),
            Sample(id="image", input=[ChatMessageUser(content=[image, ContentText(text="What rash is this?")])]),
            Sample(id="image only", input=[ChatMessageUser(content=[image])]),
            Sample(id="several", input="Several?"),
            Sample(id="parts", input="Parts?"),
            Sample(id="invalid", input="Invalidated?"),
        ],
        ["Draft: Rest.", "wrong", "", "Eczema.", "No.", ModelOutput(model="m", choices=two), parts, "Bad."],
        changes(),
        fail_on_error=False,
    )  # fmt: skip
    (log,) = (folder / "mixed").glob("*.json")
    whole = read_eval_log(str(log))
    uuids = [each.uuid for each in whole.samples if each.id == "invalid"]
    write_eval_log(invalidate_samples(whole, uuids, ProvenanceData(author="somebody", reason="a fault")), str(log))
    _inspect(
        folder / "turns", [Sample(id=1, input="First?", target="x")], ["One.", "Two."],
        [generate(), user_message("And for a child?"), generate()],
    )  # fmt: skip
    _inspect(
        folder / "tools", [Sample(id=n, input=f"{n} + 1?") for n in (1, 2)], [call, "It is 2.", call, call],
        [use_tools(adder()), generate()], message_limit=4,
    )  # fmt: skip


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
    odd = [  # choices, indices, texts
        (["Rest.", "Run."], [0], ["Rest.", "Again."]),
        (["Rest.", "Run."], [0, 1], [""]),
        (["Rest.", "Run."], [5], ["Run."]),
        ([], [0], ["Run."]),
        (["Rest."], [0], []),
    ]
    for number, (choices, gold, texts) in enumerate(odd):
        doc = Doc(f"Odd {number}?", choices, gold_index=gold, task_name="odd|0", id=str(number))
        logger.details["odd|0"].append(logger.Detail(doc, ModelResponse(text=texts), {"exact_match": 0.0}))
    tracker.save()


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    lm_eval_log(target)
    odd_lm_eval_logs(target / "odd")
    inspect_log(target)
    odd_inspect_logs(target / "odd")
    lighteval_log(target)
