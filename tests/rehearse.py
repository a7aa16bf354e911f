"""Rehearse a study: run every step with tiny models, few rows and a double of the endpoint, in a folder of its own.

    python tests/rehearse.py recipes/runs/automedeval-13b --ablation no_chain --place rehearsals

The other options are those of recipes/reproduce.sh. In the folder the paths of the YAMLs mean the same as in the repository:
src, recipes, accelerate_configs and model_card.md lead there, and stand-ins lie where the user's own files would.
"""

import argparse
import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from doubles.stand_ins import CASES, decide, stand_in
from doubles.study_endpoint import serve
from programs import ROOT

sys.path.insert(0, str(ROOT / "recipes"))
import reproduce
from study.files import OWN, PLANS, Lists, UserFile
from study.steps import NAMES, Step, StudyError, comma_list, read_yaml

GPUS = "accelerate_configs/zero3.yaml"  # eight
CPUS = "accelerate_configs/zero3_cpu.yaml"  # two processes
SMALLER = Path(__file__).parent / "data" / "rehearsal.yaml"
ENDPOINT = {"base_url", "api_key_env"}  # of a judge that is asked elsewhere than at OpenAI; the double is asked instead


@dataclass
class Rehearsal:
    """A folder in which a study is rehearsed; the working folder of the program while it runs.

    Args:
        place: the folder.
        lists: the study's lists.
    """

    place: Path
    lists: Lists

    def __post_init__(self) -> None:
        self.smaller = read_yaml(SMALLER)
        self.share = CASES / self.lists.cases if self.lists.cases else 1.0
        self.doubled: set[str] = set()  # models of endpoints, as judges are called in later steps
        self.place.mkdir(parents=True, exist_ok=True)
        for name in OWN:
            link = self.place / name
            if not link.is_symlink():
                link.symlink_to(ROOT / name)

    def adapt(self, step: Step) -> Step:
        """Return a step with small numbers, doubles in the place of endpoints, and two CPU processes in the place of GPUs."""
        changes = dict(self.smaller.get(step.recipe, {}))
        kept = {name: value for name, value in step.changes.items() if name not in ENDPOINT}
        for name, value in step.arguments.items():
            if isinstance(value, str) and value.startswith("openai:"):
                self.doubled.add(value.removeprefix("openai:"))
                changes[name] = value.replace("openai:", "openai:double-of-")
            if name in NAMES and value:
                judges = comma_list(value)
                changes[name] = [f"double-of-{judge}" if judge in self.doubled else judge for judge in judges]
            if name == "plan":
                changes[name] = self._small_plan(Path(value))
        start = [CPUS if word == GPUS else word for word in step.launch]
        if "--num_processes" in start:  # one process does as many rows
            start = ["python"]
        return replace(step, changes={**kept, **changes}, start=tuple(start))

    def _small_plan(self, file: Path) -> str:
        """Write a plan with counts in proportion to the rehearsal's cases; return its path."""
        if file.parts[0] == PLANS or not (self.place / file).is_file():
            return str(file)

        def small(value: Any) -> Any:
            if isinstance(value, dict):
                counted = {key: small(each) for key, each in value.items()}
                return counted | (
                    {"take": max(1, int(value["take"] * self.share))} if type(value.get("take")) is int else {}
                )
            return [small(each) for each in value] if isinstance(value, list) else value

        content = small(read_yaml(self.place / file))
        place = Path(PLANS) / file.parent.name / file.name
        (self.place / place.parent).mkdir(parents=True, exist_ok=True)
        (self.place / place).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8", newline="\n")
        return str(place)

    def bring(self, brought: UserFile, judges: Sequence[str] = ()) -> None:
        """Put a stand-in where the user's file would be, if what people rate in it is there; `judges` are whose verdicts."""
        if brought.there(self.place) or not all((self.place / file).exists() for file in brought.of):
            return
        with redirect_stdout(io.StringIO()):  # DeepSpeed writes there when it is first imported
            stand_in(brought, self.place, judges)

    def decide(self, step: Step) -> bool:
        """Play the jury of a round that waits for it, in the form of the page's export; return whether a case waited."""
        if step.recipe != "introspect":
            return False
        queue = self.place / f"{step.arguments['output']}.discussion" / "jury.jsonl"
        decided = queue.parent / "decided" / queue.name
        if decided.exists() or not queue.exists():
            return False
        decided.parent.mkdir(exist_ok=True)
        decide(queue, decided)
        print(f"a simulated jury decides in {decided}", flush=True)
        return True

    def environment(self) -> Mapping[str, str]:
        """Start the endpoint's double; return the environment of the steps."""
        # Verdicts record their endpoint, so a rehearsal that goes on needs the same port.
        file = self.place / "endpoint.port"
        wanted = int(file.read_text(encoding="utf-8")) if file.exists() else 0
        try:
            port = serve(wanted)
        except OSError as error:
            raise StudyError(
                f"{file}: port {wanted} is taken ({error.strerror}); remove {self.place} to begin anew"
            ) from None
        file.write_text(f"{port}\n", encoding="utf-8", newline="\n")
        binaries = str(Path(sys.executable).parent)  # DeepSpeed looks for ninja there
        return os.environ | {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "OPENAI_API_KEY": "rehearsal",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "OMP_WAIT_POLICY": "PASSIVE",
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
        }


def main() -> int:
    """Hand the command line to recipes/reproduce.py, with a rehearsal in the place of this machine and its files."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--place", type=Path, default=Path("rehearsals"))
    args, rest = parser.parse_known_args()
    if taken := {"--accelerate_config", "--num_processes", "--check_endpoints"} & {*rest}:
        parser.error(f"{min(taken)}: a rehearsal has a machine and an endpoint of its own")
    sys.argv[1:] = rest
    return reproduce.main(Rehearsal, args.place)


if __name__ == "__main__":
    sys.exit(main())
