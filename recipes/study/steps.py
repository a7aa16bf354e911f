"""The steps of a study, in the order of the paper.

A step is one YAML of the run's folder with the arguments that replace some of its own. Everything else about a step follows
from its YAML: the command in the first line, and the arguments in the rest.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

# libyaml's loader is ten times as fast, and a plan reads dozens of files.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ABLATIONS = ("no_chain", "no_curriculum", "no_introspection", "vanilla")  # Paper: Table 2
TABLES = {
    "table2": "Table 2: every judge and the physicians",
    "table3": "Table 3 and Appendix F: the rounds of introspection",
    "figure4": "Figure 4: the candidates, by the judge and by the physicians",
    "figure5": "Figure 5: what physicians say of the verdicts",
}
NAMES = ("compare_to", "judges", "rounds", "teacher_verdicts")  # arguments of recipes/report.py that name judges

# Recipe → the argument of its output, and what it writes there; "" is the folder itself.
WRITES = {
    "prepare": ("output", ("cases.jsonl", "dropped.jsonl")),
    "generate_responses": ("output", ("", "cases.jsonl")),
    "build_store": ("store", ("",)),
    "distill": ("output", ("", "verdicts.jsonl")),
    "build_dataset": ("output", ("",)),
    "judge": ("output", ("", "verdicts.jsonl")),
    "introspect": ("output", ("", "train.parquet", "test.parquet")),
    "sft": ("output_dir", ("",)),
    "report": ("output", ("agreement.json", "report.html", "report.md")),
    "calibrate": ("output", ("", "verdicts.jsonl", "calibration.json")),
    "compare": ("output", ("comparison.html", "comparison.md", "comparison.json")),
    "audit": ("output", ("audit.html", "audit.md", "audit.json")),
    "publish": (None, ()),
}


class StudyError(Exception):
    """A study cannot be planned; the message is one readable line."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    rounds: int = 1
    runs: int = 1
    ablation: str | None = None
    lora: bool = False
    publish: str | None = None
    waiting: str | None = None  # what becomes of cases that wait for the jury; None stops the study
    base: str | None = None  # the model in the place of the study's base
    judges: tuple[str, ...] | None = None  # of the other judges only these are asked; None asks all


@dataclass(frozen=True)
class Step:
    """One run of a recipe.

    Attributes:
        file: the YAML.
        about: what the step does, for its heading.
        changes: arguments that replace those of the YAML.
        start: the words before the recipe, in place of those of the YAML's first line.
        seconds: about how long it takes, if that is known.
    """

    file: Path
    about: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    start: tuple[str, ...] | None = None
    seconds: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the YAML, without its folder and suffix."""
        return self.file.stem

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the recipe: the YAML's, with the changes in their place."""
        return read_yaml(self.file) | self.changes

    @cached_property
    def _first_line(self) -> tuple[list[str], str]:
        """Return the words before the recipe, and the recipe."""
        first = self.file.read_text(encoding="utf-8").partition("\n")[0]
        words = shlex.split(first.removeprefix("#"))
        at = next((at for at, word in enumerate(words) if word.startswith("recipes/")), None)
        config = words[-1] if at is not None and words[at + 1 : -1] == ["--config"] else ""
        if Path(config).parts[-2:] != (self.file.parent.name, self.file.name):
            raise StudyError(f"{self.file}: the first line must be the command that runs this file, not {first!r}")
        if not Path(words[at]).is_file():
            raise StudyError(f"{self.file}: the first line names {words[at]}, and there is no such recipe")
        return words[:at], words[at]

    @property
    def recipe(self) -> str:
        """Return the recipe's path."""
        return self._first_line[1]

    @property
    def launch(self) -> Sequence[str]:
        """Return the words before the recipe."""
        return self._first_line[0] if self.start is None else self.start

    def command(self, python: str) -> list[str]:
        """Return the words of the command, for this interpreter."""
        program, *rest = self.launch
        start = [python, *rest] if program == "python" else [python, "-m", "accelerate.commands.accelerate_cli", *rest]
        changes = [word for name, value in self.changes.items() for word in (f"--{name}", as_word(value))]
        return [*start, self.recipe, "--config", str(self.file), *changes]


def output_of(step: Step) -> tuple[str | None, tuple[str, ...]]:
    """Return the argument of a step's output, and what it writes there."""
    found = WRITES.get(Path(step.recipe).stem)
    if found is None:
        raise StudyError(f"{step.file}: {step.recipe} is no step of a study: nobody knows what it writes")
    return found


def moved(value: Any, move: Callable[[str], str]) -> Any:
    """Return the value of an argument with its paths moved; KIND: or NAME= may stand before a path."""
    if isinstance(value, list):
        return [moved(each, move) for each in value]
    if not isinstance(value, str):
        return value
    at = max(value.rfind(":"), value.rfind("=")) + 1
    return value[:at] + move(value[at:])


def changed(step: "Step", changes: Mapping[str, Any]) -> "Step":
    """Return a step with other arguments; one that is as it was is no change."""
    new = {name: value for name, value in changes.items() if value != step.arguments[name]}
    return replace(step, changes={**step.changes, **new})


def as_word(value: Any) -> str:
    """Return a value as the recipes read it on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def comma_list(value: str | list[str]) -> list[str]:
    """Return the entries of a list, or of a text that separates them by commas, as the recipes read both."""
    return [entry.strip() for entry in (value.split(",") if isinstance(value, str) else value)]


def read_yaml(file: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file holds."""
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise StudyError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise StudyError(f"{file}: must be a mapping of arguments to values")
    return content


def judge_name(arguments: Mapping[str, Any]) -> str:
    """Return the name that the verdicts of a run of recipes/judge.py record."""
    kind, colon, model = str(arguments["judge"]).rpartition(":")
    return str(arguments.get("judge_name") or f"{kind}{colon}".removeprefix("openai:") + Path(model).name)


class Judges(NamedTuple):
    """The other judges of a study: the arguments of recipes/judge.py that all of them have, and those of each by its name."""

    every: dict[str, Any]
    each: dict[str, dict[str, Any]]


def read_judges(folder: Path) -> Judges:
    """Read the judges.yaml of a run's folder; a folder may have none."""
    file = folder / "judges.yaml"
    if not file.is_file():
        return Judges({}, {})
    content = read_yaml(file)
    every, listed = content.get("every", {}), content.get("judges", [])
    if content.keys() - {"every", "judges"} or not isinstance(every, dict) or not isinstance(listed, list):
        raise StudyError(
            f"{file}: must have the keys every, a mapping of arguments, and judges, a list of such mappings"
        )
    found: dict[str, dict[str, Any]] = {}
    for number, given in enumerate(listed, 1):
        if not isinstance(given, dict) or not isinstance(given.get("judge"), str):
            raise StudyError(f"{file}: entry {number} of judges must be a mapping of arguments, with judge: MODEL")
        name = judge_name(given)
        if name in found:
            raise StudyError(f"{file}: two judges are called {name}; give one of them a judge_name")
        found[name] = every | given
    return Judges(every, found)


Adapt = Callable[[Step], Step]  # what a rehearsal makes smaller, or another base changes


class Judge(NamedTuple):
    """A trained judge: its name in verdicts and reports, and its checkpoint."""

    name: str
    checkpoint: str


class Study:
    """The steps of a run's folder: those of the paper, or those that its study.yaml lists.

    Such a list takes YAMLs of another run folder, makes them smaller, and writes all in one place:

        of: recipes/runs/NAME             the folder of the YAMLs
        place: FOLDER                     what the steps write is written below it, so that the other study's files stay
        steps:
          - {run: YAML, about: WHAT AND WHY, seconds: N, with: {ARGUMENT: VALUE}}

    Args:
        folder: the folder with the YAMLs.
        options: what the command line asks for.
        adapts: change every step, one after the other.
        listed: the keys of, place and steps of the study.yaml, if it has them.
    """

    def __init__(self, folder: Path, options: Options, adapts: Sequence[Adapt] = (), listed: Mapping[str, Any] = {}):
        self.folder, self.options, self._adapts = folder, options, adapts
        self.left_out: list[str] = []
        self.steps = list(self._listed(Path(listed["of"]), listed["place"], listed["steps"]) if listed else self._all())

    def _listed(self, folder: Path, place: str, listed: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
        steps = []
        for given in listed:
            keys = set(given) if isinstance(given, dict) else set()
            if not {"run", "about"} <= keys <= {"run", "about", "seconds", "with"}:
                raise StudyError(
                    f"study.yaml: steps: each has the keys run and about, and may have seconds and with: {given}"
                )
            file = folder / f"{given['run']}.yaml"
            if not file.is_file():
                raise StudyError(f"study.yaml: steps: there is no {file}")
            steps.append(Step(file, given["about"], given.get("with", {}), seconds=given.get("seconds")))
        outputs = {str(step.arguments[argument]) for step in steps if (argument := output_of(step)[0])}

        def move(path: str) -> str:
            return f"{place}/{path}" if outputs & {str(each) for each in (Path(path), *Path(path).parents)} else path

        for step in steps:
            yield self._adapt(changed(step, {name: moved(value, move) for name, value in step.arguments.items()}))

    def _adapt(self, step: Step) -> Step:
        for adapt in self._adapts:
            step = adapt(step)
        return step

    def _step(self, name: str, about: str, start: tuple[str, ...] | None = None, **changes: Any) -> Iterator[Step]:
        """Yield one step; nothing, and a note, if the folder has no such YAML."""
        file = self.folder / f"{name}.yaml"
        if file.is_file():
            yield self._adapt(Step(file, about, changes, start))
        else:
            self.left_out.append(f"{about}: left out, there is no {file}")

    def _value(self, name: str, argument: str) -> Any:
        """Return an argument of a YAML."""
        return self._adapt(Step(self.folder / f"{name}.yaml", "")).arguments[argument]

    def _has(self, name: str) -> bool:
        return (self.folder / f"{name}.yaml").is_file()

    @property
    def _variant(self) -> str:
        """Return what the names of this variant's own folders end with; "" for the study itself."""
        ablation, lora = self.options.ablation, "-lora" if self.options.lora else ""
        return lora if ablation in (None, "no_introspection") else f"-{ablation}"

    @property
    def _whole(self) -> bool:
        """Return whether this is the study itself with all its rounds, so that the YAMLs say what its last judge is."""
        return self.options.ablation is None and not self.options.lora and self.options.rounds >= self._rounds

    @property
    def _rounds(self) -> int:
        """Return the number of rounds that the folder has files for."""
        return len(list(self.folder.glob("introspect[0-9].yaml")))

    def _all(self) -> Iterator[Step]:
        yield from self._data()
        dataset, steps = self._ablated_data()
        yield from steps
        yield from self._judges()
        yield from self._step("judge_likelihood", "the base model as a likelihood judge")
        if self._has("judge_small"):  # the paper has no such judge
            yield from self._step("judge_small", "the packaged small judge")
        first: list[Judge] = []
        for run in range(self.options.runs):
            judges, steps = self._training(dataset, run)
            yield from steps
            first = first or judges  # the report shows the rounds of one run
        yield from self._report(first)
        if self.options.ablation is None:  # ablations are compared, not shared
            yield from self._tables(first, "table2", "table3", "figure4")
        if self.options.ablation is None and self.options.base is None:
            yield from self._publishing(first[-1])
            # Physicians rate the verdicts of the study itself; last, so that nothing waits for them.
            if not self.options.lora:
                yield from self._tables(first, "figure5")
        yield from self._comparison()

    def _data(self) -> Iterator[Step]:
        """The instruction data set, and the test set (paper sections 3.1 and 4.1)."""
        yield from self._step("prepare_cases", "public questions")
        yield from self._step("prepare_medtext", "questions of the test set alone")
        yield from self._step("generate_responses", "the candidates answer the questions")
        yield from self._step("generate_medtext", "all candidates answer the questions of the test set alone")
        yield from self._step("build_store", "reference books into the knowledge store")
        yield from self._step("distill_strong", "the strong teacher judges, with the knowledge completion chain")
        yield from self._step("distill_weak", "the weak teacher judges the same cases")
        yield from self._step("build_dataset", "physicians' checks, quality, curriculum splits")
        yield from self._step("prepare_test", "the test set: the cases that the plan set apart, and the others")
        yield from self._step("generate_test", "the other candidates answer the test cases")

    def _ablated_data(self) -> tuple[str, list[Step]]:
        """Return the data set to train on, and the steps that make it if an ablation changes it."""
        dataset, ablation, steps = self._value("build_dataset", "output"), self.options.ablation, []
        if ablation not in ("no_chain", "vanilla"):
            return dataset, steps
        changes: dict[str, Any] = {"output": dataset + self._variant, "on_leak": "drop"}
        if self._has("prepare_test"):  # the judges of an ablation meet the study's own test cases
            test = f"{self._value('prepare_test', 'output')}/cases.jsonl"
            changes["evaluation_cases"] = [*self._value("build_dataset", "evaluation_cases"), test]
        if ablation == "no_chain":
            # Physicians checked the study's own texts: their ratings count only where the digest is that of these.
            changes["verdicts"] = []
            for teacher in ("strong", "weak"):
                name, about = f"distill_{teacher}", f"the {teacher} teacher judges, and may not ask"
                output = self._value(name, "output") + self._variant
                steps += self._step(name, about, knowledge="none", output=output)
                changes["verdicts"].append(f"{output}/verdicts.jsonl")
        else:
            plan = read_yaml(self.folder / "build_dataset.yaml")["plan"]
            changes["plan"] = str(Path(plan).with_name("plan_vanilla.yaml"))
        return changes["output"], [*steps, *self._step("build_dataset", f"the instructions of {ablation}", **changes)]

    def _judges(self) -> Iterator[Step]:
        """The base model, and the other judges of Table 2, on the test cases."""
        every, each = read_judges(self.folder)
        chosen = self.options.judges
        if unknown := [name for name in chosen or () if name not in each]:
            raise StudyError(f"--judges {unknown[0]}: {self.folder}/judges.yaml has {', '.join(each) or 'no judge'}")
        yield from self._step("judge", "the base model judges the test cases", **every)
        # The verdicts of an ablation are read beside those that the study itself left.
        for name, arguments in each.items() if self.options.ablation is None else ():
            if chosen is not None and name not in chosen:
                self.left_out.append(f"{name} judges the test cases: left out by --judges")
                continue
            start = ("python",) if arguments["judge"].startswith("openai:") else None  # one process asks an endpoint
            yield from self._step("judge", f"{name} judges the test cases", start, **arguments)

    def _training(self, dataset: str, run: int) -> tuple[list[Judge], list[Step]]:
        """Return the judges of one run, from that of the last stage on, and its steps (sections 3.2 and 3.3)."""
        ablation, again = self.options.ablation, f"-run{run + 1}" if run else ""
        variant, steps, judges = self._variant + again, [], []
        seed = {"seed": run} if run else {}

        def train(name: str, start: str | None, data: str | None) -> None:
            """Add a training and the verdicts of its checkpoint; `start` and `data` count in a variant only."""
            own = again if name.startswith(("no_curriculum", "vanilla")) else variant  # the first name the ablation
            place, changes, file = self._value(name, "output_dir") + own, dict(seed), name
            if self.options.lora:
                file, place = "lora", self._value("lora", "output_dir").replace("stage1", name) + again
                changes["dataset_train_split"] = self._value(name, "dataset_train_split")
            if own and not (self.options.lora and name == "stage1" and not run):  # that is what lora.yaml says
                changes |= {"output_dir": place} | ({"model_name_or_path": start} if start else {})
                changes |= {"dataset_name": data} if data else {}
            judge = Judge(name + own, place)
            steps.extend(self._step(file, f"training: {self._title(name)}", **changes))
            steps.extend(self._step("judge", f"{judge.name} judges the test cases", judge=place, judge_name=judge.name))
            judges.append(judge)

        if ablation in ("no_curriculum", "vanilla"):
            for name in ("no_curriculum",) if ablation == "no_curriculum" else ("vanilla", "vanilla_all"):
                if self._has(name):
                    train(name, None, None)
        else:
            for name in ("stage1", "stage2", "stage3"):
                train(name, judges[-1].checkpoint if judges else None, dataset)
        first = len(judges) - 1
        for number in range(1, self.options.rounds + 1):  # Algorithm 2
            name, reading = f"introspect{number}", f"judge_training{number}"
            if not self._has(name):
                self.left_out.append(f"round {number}: left out, there is no {self.folder / name}.yaml")
                break
            before, ours, revised = judges[-1], {}, {}
            if variant:
                read = self._value(reading, "output") + variant
                ours = {"judge": before.checkpoint, "judge_name": before.name, "dataset": dataset, "output": read}
                dataset, data = self._value(name, "output") + variant, dataset
                revised = {"dataset": data, "verdicts": read, "output": dataset}
            if ablation == "no_chain":
                # Paper: the suggestions are those of "our retrieval-augmented GPT-4"; without the chain they have no books.
                revised["knowledge"] = "none"
            if self.options.waiting:
                revised["waiting"] = self.options.waiting
            steps += self._step(reading, f"{before.name} judges its training cases", **ours)
            steps += self._step(name, "its mistakes are discussed and revised", **revised)
            train(f"introspection{number}", before.checkpoint, dataset)
        return judges[first:], steps

    def _title(self, name: str) -> str:
        """Return the second line of a YAML, which says what it is."""
        return (self.folder / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[1].removeprefix("# ").rstrip(".")

    def _report(self, judges: list[Judge]) -> Iterator[Step]:
        """The report (sections 4.3 and 4.4, Appendix F), and the audit of the last judge, which the paper does not have."""
        changes: dict[str, Any] = {"rounds": [judge.name for judge in judges]} if len(judges) > 1 else {}
        yield from self._step("report", "the report", **changes, **self._apart("report"))
        if self._has("audit"):
            judge, changes = judges[-1], {}
            if not self._whole:
                changes = {"judge": judge.checkpoint, "judge_name": judge.name}
            yield from self._step("audit", f"the audit of {judge.name}", **changes, **self._apart("audit"))

    def _tables(self, judges: list[Judge], *wanted: str) -> Iterator[Step]:
        """Tables 2 and 3 and Figures 4 and 5, each a configuration of recipes/report.py.

        A folder may have none of them. One that should is noticed by its study.yaml, which lists what the study leaves.
        """
        others = read_judges(self.folder).each.keys()
        left = others - set(self.options.judges if self.options.judges is not None else others)
        for name in filter(self._has, wanted):
            arguments = read_yaml(self.folder / f"{name}.yaml")
            named = {argument: comma_list(arguments[argument]) for argument in NAMES if argument in arguments}
            changes = {argument: self._of_this_variant(given, judges) for argument, given in named.items()}
            why = None
            if missing := left & {each for given in named.values() for each in given}:
                why = f"--judges leaves out {min(missing)}"
            elif len(changes.get("rounds", judges)) < 2:
                why = "there is one round alone"
            if why:
                self.left_out.append(f"{TABLES[name]}: left out, {why}")
                continue
            changes = {argument: given for argument, given in changes.items() if given != named[argument]}
            yield from self._step(name, TABLES[name], **changes, **self._apart(name))

    def _of_this_variant(self, names: list[str], judges: list[Judge]) -> list[str]:
        """Return the judges of this variant in the place of those of the whole study, and other names as they are.

        The last judge of the variant stands for that of the whole study; trained judges that the variant lacks are left out.
        """
        ours, found = [judge.name for judge in judges], []
        for name in names:
            if self._has(name):  # a trained judge is called like its YAML
                name = ours[-1] if name == f"introspection{self._rounds}" else name + self._variant
                if name not in ours:
                    continue
            found.append(name)
        return list(dict.fromkeys(found))

    def _apart(self, name: str) -> dict[str, str]:
        """Return the output of a report or an audit of a variant, so that those of the study itself stay."""
        variant = self.options.ablation or ("lora" if self.options.lora else None)
        return {"output": f"{self._value(name, 'output')}-{variant}"} if variant else {}

    def _comparison(self) -> Iterator[Step]:
        """What the paper does not have, and takes ratings of its own: calibration, and a comparison with few ratings."""
        yield from self._step("prepare_calibration", "training cases to calibrate with")
        yield from self._step("judge_likelihood_rated", "the likelihood judge reads rated cases")
        yield from self._step("calibrate", "and is put on the raters' scale by them")
        yield from self._step("compare", "the candidates, by many verdicts and few ratings")

    def _publishing(self, judge: Judge) -> Iterator[Step]:
        """Data set, judge and metric for the Hub; nothing is sent without --publish."""
        for what in ("dataset", "model", "metric"):
            name, changes = f"publish_{what}", {}
            if what == "model" and not self._whole and self._has(name):
                changes = {"folder": judge.checkpoint, "judge": judge.name}
                for report, argument in (("report", "agreement"), ("audit", "audit")):
                    if moved := self._apart(report):
                        changes[argument] = f"{moved['output']}/{Path(self._value(name, argument)).name}"
            if self.options.publish and self._has(name):
                organisation = f"{self.options.publish}/"
                changes |= {"dry_run": False, "repo": self._value(name, "repo").replace("ORG/", organisation)}
                if what == "model":
                    names = self._value(name, "datasets")
                    changes["datasets"] = [each.replace("ORG/", organisation) for each in names]
            sent = "is published" if self.options.publish else "is checked for the Hub; nothing is sent"
            yield from self._step(name, f"the {what} {sent}", **changes)
