"""Write runs of HELM by its own runner, without a model or a network: PYTHON tests/harness/make_helm_logs.py FOLDER.

PYTHON is that of an environment with crfm-helm 0.5.16. Two models answer three questions of a scenario; they are a client that
is defined here. `several` is a run with two trials, `choices` and `apart` are of multiple choice.
"""

import sys
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation import adapter_spec
from helm.benchmark.executor import ExecutionSpec
from helm.benchmark.model_deployment_registry import (
    ClientSpec,
    ModelDeployment,
    register_model_deployment,
)
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.runner import Runner
from helm.benchmark.scenarios import scenario
from helm.clients.client import Client
from helm.common.authentication import Authentication
from helm.common.request import ErrorFlags, GeneratedOutput, Request, RequestResult
from make_logs import QUESTIONS

HERE = "make_helm_logs"
TRAINED = [("Is rest good?", "Yes."), ("Is water good?", "It is.")]


class Questions(scenario.Scenario):
    """The questions of `make_logs`, and two to learn from."""

    name, description, tags = "questions", "Questions of patients", []

    def get_instances(self, output_path: str) -> list[scenario.Instance]:
        asked = {scenario.TRAIN_SPLIT: TRAINED, scenario.TEST_SPLIT: QUESTIONS}
        instances = []
        for split, question, answer in [
            (split, *each) for split, rows in asked.items() for each in rows
        ]:
            texts = {"Wait.": [], answer: [scenario.CORRECT_TAG]}
            references = [
                scenario.Reference(scenario.Output(text), tags) for text, tags in texts.items()
            ]
            instances.append(scenario.Instance(scenario.Input(question), references, split))
        return instances


class Parrot(Client):
    """Answer as the model: model-a says nothing of ibuprofen, and the request of model-b about it fails."""

    def tokenize(self, request):  # never asked
        raise NotImplementedError

    decode = tokenize

    def make_request(self, request: Request) -> RequestResult:
        asked = request.prompt.split("Question: ")[-1]
        text = f"{request.model_engine} says: {asked.splitlines()[0]}"
        if "ibuprofen" in asked and request.model_engine == "model-a":
            text = ""
        if "ibuprofen" in asked and request.model_engine == "model-b":
            flags = ErrorFlags(is_retriable=False, is_fatal=False)
            return RequestResult(False, [], [], False, error="filtered", error_flags=flags)
        return RequestResult(True, [], [GeneratedOutput(text, 0.0, [])], False)


def main(folder: Path) -> None:
    for name in ("acme/model-a", "acme/model-b"):
        register_model_deployment(
            ModelDeployment(name, ClientSpec(f"{HERE}.Parrot"), model_name=name)
        )
    execution = ExecutionSpec(None, Authentication(""), str(folder / "base"), parallelism=1)
    runner = Runner(execution, str(folder), "suite", False, False, False, False, True)

    def run(
        name: str, model: str, method: str = adapter_spec.ADAPT_GENERATION, **more: Any
    ) -> None:
        adapter = adapter_spec.AdapterSpec(
            method=method, input_prefix="Question: ", input_suffix="\n", output_prefix="Answer: ", max_tokens=20,
            instructions="Answer the patient.", model=model, model_deployment=model,
            **{"max_train_instances": 0, "num_outputs": 1} | more,
        )  # fmt: skip
        runner.run_one(RunSpec(name, scenario.ScenarioSpec(f"{HERE}.Questions"), adapter, []))

    run("a", "acme/model-a")
    run("b", "acme/model-b")
    run("several", "acme/model-a", max_train_instances=1, num_train_trials=2)
    run("choices", "acme/model-a", adapter_spec.ADAPT_MULTIPLE_CHOICE_JOINT)
    run("apart", "acme/model-a", adapter_spec.ADAPT_MULTIPLE_CHOICE_SEPARATE_ORIGINAL)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
