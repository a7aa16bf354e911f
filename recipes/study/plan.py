"""The plan of a study: the steps of the paper in their order, or the steps that a study.yaml lists.

The YAMLs of a run's folder say what the whole study does. A variant of it (an ablation, adapters, another base, a further run
of training) has the same steps, with other names for its own outputs and judges.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from study.steps import NAMES, TEMPLATES, Step, StudyError, comma_list, has_template, judge_name, moved, read_yaml
from study.teachers import Teachers

STAGES = ("stage1", "stage2", "stage3")
TABLES = {
    "table2": "Table 2: every judge and the physicians",
    "table3": "Table 3 and Appendix F: the rounds of introspection",
    "figure4": "Figure 4: the candidates, by the judge and by the physicians",
    "figure5": "Figure 5: what physicians say of the verdicts",
}
REPORTS = ("report", "audit", "table*", "figure*")
ROUNDS = ("judge_training*", "introspect*")
# Variant → the YAMLs whose outputs and judges get its name, so that those of the study itself stay.
OWN = {
    "no_chain": ("distill_*", "build_dataset", "stage*", *ROUNDS, *REPORTS),
    "no_curriculum": (*ROUNDS, *REPORTS),
    "no_introspection": REPORTS,
    "vanilla": ("build_dataset", *REPORTS),
    "lora": ("stage*", *ROUNDS, *REPORTS),
}
OWN_OF_RUN = ("stage*", "lora", "no_curriculum", "vanilla*", *ROUNDS)
OWN_OF_BASE = ("build_dataset", "judge_likelihood_rated", "calibrate", "compare", *OWN_OF_RUN, *REPORTS)
ABLATIONS = ("no_chain", "no_curriculum", "no_introspection", "vanilla")  # Paper: Table 2


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    runs: int = 1
    ablation: str | None = None
    lora: bool = False
    base: str | None = None  # the model in the place of the study's base
    judges: tuple[str, ...] | None = None  # of the other judges only these are asked; None asks all
    teachers: tuple[str, ...] = ()  # ROLE=MODEL


class Judges(NamedTuple):
    """The other judges of a study: the arguments of recipes/judge.py that all of them have, and those of each by its name."""

    every: dict[str, Any]
    each: dict[str, dict[str, Any]]


def read_judges(folder: Path, teachers: Teachers) -> Judges:
    """Read the judges.yaml of a run's folder, with the models of its roles; a folder may have none."""
    file = folder / "judges.yaml"
    if not file.is_file():
        return Judges({}, {})
    content = read_yaml(file)
    every, listed = content.get("every", {}), content.get("judges", [])
    if content.keys() - {"every", "judges"} or not isinstance(every, dict) or not isinstance(listed, list):
        raise StudyError(
            f"{file}: must have the keys every, a mapping of arguments, and judges, a list of such mappings"
        )
    judges: dict[str, dict[str, Any]] = {}
    for number, arguments in enumerate(listed, 1):
        if not isinstance(arguments, dict) or not isinstance(arguments.get("judge"), str):
            raise StudyError(f"{file}: entry {number} of judges must be a mapping of arguments, with judge: MODEL")
        arguments = arguments | teachers.arguments(arguments, file)
        name = judge_name(arguments)
        if judges.get(name) == every | arguments:  # one model in two roles
            continue
        if name in judges:
            raise StudyError(f"{file}: two judges are called {name}; give one of them a judge_name")
        judges[name] = every | arguments
    return Judges(every, judges)


@dataclass
class Renaming:
    """Other names for outputs and judges, wherever steps have them.

    Attributes:
        paths: path → new path; files below a path move with it.
        judges: name of a trained judge → new name.
        template: whether the base has a chat template, which takes the place of the YAMLs'.
    """

    paths: dict[str, str] = field(default_factory=dict)
    judges: dict[str, str] = field(default_factory=dict)
    template: bool = False

    def __call__(self, step: Step) -> Step:
        """Return a step with the new names."""
        changes: dict[str, Any] = {}
        for name, value in step.arguments.items():
            # The base's template, not a candidate's.
            if name in TEMPLATES and self.template and step.recipe != "generate_responses":
                changes[name] = "none"
            elif name == "judge_name":
                changes[name] = self.judges.get(value, value)
            elif name in NAMES and value:
                judges = comma_list(value)
                renamed = [self.judges.get(judge, judge) for judge in judges]
                changes[name] = value if renamed == judges else renamed
            else:
                changes[name] = moved(value, self._path)
        about = " ".join(self.judges.get(word, word) for word in step.about.split())
        return replace(step.changed(changes), about=about)

    def _path(self, path: str) -> str:
        for old, new in self.paths.items():
            if path == old or path.startswith(f"{old}/"):
                return new + path.removeprefix(old)
        return path


def listed_steps(teachers: Teachers, place: str, listed: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return the steps of a list, which takes YAMLs of another run folder, changes some arguments, and writes all in one place.

    Args:
        teachers: the models of the folder of the YAMLs.
        place: the folder below which the steps write, so that the other study's files stay.
        listed: the steps, each {run: YAML, about: WHAT AND WHY, with: {ARGUMENT: VALUE}}.
    """
    steps = []
    for entry in listed:
        names = set(entry) if isinstance(entry, dict) else set()
        if not {"run", "about"} <= names <= {"run", "about", "with"}:
            raise StudyError(f"study.yaml: steps: each has the keys run and about, and may have with: {entry}")
        file = teachers.file.with_name(f"{entry['run']}.yaml")
        if not file.is_file():
            raise StudyError(f"study.yaml: steps: there is no {file}")
        step = Step(file, entry["about"], entry.get("with", {}))
        steps.append(step.changed(teachers.arguments(step.arguments, file)))
    outputs = [str(step.arguments[argument]) for step in steps if (argument := step.output[0])]
    return list(map(Renaming({path: f"{place}/{path}" for path in outputs}), steps))


class Study:
    """The steps of the paper, from the YAMLs of a run's folder.

    Args:
        folder: the folder with the YAMLs.
        options: what the command line asks for.

    Attributes:
        steps: the steps in their order.
        left_out: what is left out, and why, one line each.
    """

    def __init__(self, folder: Path, options: Options):
        self.folder, self.options, self.teachers = folder, options, Teachers(folder, options.teachers)
        self.judges = read_judges(folder, self.teachers)
        self.variant = options.ablation or ("lora" if options.lora else None)
        rounds = (
            0 if options.ablation in ("no_introspection", "vanilla") else len(list(folder.glob("introspect?.yaml")))
        )
        self.rounds = range(1, rounds + 1)
        self.left_out: list[str] = []
        self.steps = list(self._all())

    def _all(self) -> Iterator[Step]:
        shared, renamed = self._renaming(shared=True), self._renaming()
        yield from map(shared, self._data())
        yield from map(renamed, self._ablated_data())
        yield from map(shared, self._base_judges())
        yield from self._other_judges()
        for run in range(self.options.runs):
            yield from map(self._renaming(run), self._training(run))
        yield from map(renamed, self._reports())
        if self.variant is None and self.options.base is None:
            yield from self._publishing()
            yield from self._tables("figure5")  # physicians rate these verdicts; late, so that nothing waits for them
        if self.variant is None:
            yield from map(renamed, self._comparison())

    def _renaming(self, run: int = 0, shared: bool = False) -> Renaming:
        """Return the names of a run; `shared`: of what the study itself and its variants have in common."""
        patterns_of: dict[str, tuple[str, ...]] = {}  # what is added to a name → the YAMLs that it is added for
        if self.variant and not shared:
            patterns_of[f"-{self.variant}"] = OWN[self.variant]
        if self.options.base:
            patterns_of[f"-{Path(self.options.base).name}"] = OWN_OF_BASE
        if run:
            patterns_of[f"-run{run + 1}"] = OWN_OF_RUN
        names = Renaming()
        for file in self.folder.glob("*.yaml"):
            fitting = [
                name for name, patterns in patterns_of.items() if any(fnmatch(file.stem, each) for each in patterns)
            ]
            if added := "".join(fitting):
                step = Step(file, "")
                path = step.arguments[str(step.output[0])]
                names.paths[path] = path + added
                if step.recipe == "sft":
                    names.judges[file.stem] = file.stem + added
        if self.options.ablation == "no_curriculum" and not shared:  # rounds begin with its judge
            whole, alone = self._checkpoint(STAGES[-1]), self._checkpoint("no_curriculum")
            names.paths[whole] = names.paths.get(alone, alone)
            names.judges[STAGES[-1]] = names.judges.get("no_curriculum", "no_curriculum")
        if self.options.base:
            base = self._value("judge", "judge")
            names.paths |= {base: self.options.base, Path(base).name: Path(self.options.base).name}
            names.template = has_template(self.options.base)
        return names

    def _has(self, name: str) -> bool:
        return (self.folder / f"{name}.yaml").is_file()

    def _value(self, name: str, argument: str) -> Any:
        """Return an argument of a YAML."""
        return read_yaml(self.folder / f"{name}.yaml")[argument]

    def _checkpoint(self, name: str) -> str:
        return self._value(name, "output_dir")

    def _step(self, name: str, about: str, start: tuple[str, ...] | None = None, **changes: Any) -> Iterator[Step]:
        """Yield one step; nothing, and a note, if the folder has no such YAML."""
        if self._has(name):
            step = Step(self.folder / f"{name}.yaml", about, changes, start)
            yield step.changed(self.teachers.arguments(step.arguments, step.file))
        else:
            self.left_out.append(f"{about}: left out, there is no {self.folder / name}.yaml")

    def _data(self) -> Iterator[Step]:
        """The instruction data set, and the test set (paper sections 3.1 and 4.1)."""
        yield from self._step("prepare_cases", "public questions")
        yield from self._step("prepare_medtext", "questions of the test set alone")
        yield from self._step("generate_responses", "the candidates answer the questions")
        yield from self._step("build_store", "reference books into the knowledge store")
        yield from self._step("distill_strong", "the strong teacher judges, with the knowledge completion chain")
        if self._has("verify"):
            yield from self._step("verify", "physicians' checks of the strong teacher's verdicts")
            yield from self._step("prepare_verified", "the verified cases")
        yield from self._step("distill_weak", "the weak teacher judges the same cases")
        yield from self._step("build_dataset", "quality, curriculum splits")
        yield from self._step("prepare_test", "the test set: the cases that the plan set apart, and the others")
        yield from self._step("generate_test", "three of the four candidates answer each test case, in turn")

    def _ablated_data(self) -> Iterator[Step]:
        """The data set to train on, where an ablation changes it."""
        changes: dict[str, Any] = {"on_leak": "drop"}
        if self.options.ablation == "no_chain":
            # Physicians checked the study's own texts: their ratings count only where the digest is that of these.
            same = {"knowledge": "none", "cases": self._value("distill_weak", "cases")}
            for teacher in ("strong", "weak"):
                yield from self._step(f"distill_{teacher}", f"the {teacher} teacher judges, and may not ask", **same)
        elif self.options.ablation == "vanilla":
            changes["plan"] = str(Path(self._value("build_dataset", "plan")).with_name("plan_vanilla.yaml"))
        else:
            return
        if self._has("prepare_test"):  # the judges of an ablation meet the study's own test cases
            test = f"{self._value('prepare_test', 'output')}/cases.jsonl"
            changes["evaluation_cases"] = [*self._value("build_dataset", "evaluation_cases"), test]
        yield from self._step("build_dataset", f"the instructions of {self.options.ablation}", **changes)

    def _base_judges(self) -> Iterator[Step]:
        """The judges that are not trained, on the test cases."""
        every = self.judges.every
        yield from self._step("judge", "the base model judges the test cases", **every)
        yield from self._step("judge_likelihood", "the base model as a likelihood judge")
        if self._has("judge_small"):  # the paper has no such judge
            yield from self._step("judge_small", "the packaged small judge")

    def _other_judges(self) -> Iterator[Step]:
        """The other judges of Table 2, on the test cases."""
        judges, chosen = self.judges.each, self.options.judges
        if unknown := [name for name in chosen or () if name not in judges]:
            raise StudyError(f"--judges {unknown[0]}: {self.folder}/judges.yaml has {', '.join(judges) or 'no judge'}")
        # The verdicts of an ablation are read beside those that the study itself left.
        for name, arguments in judges.items() if self.options.ablation is None else ():
            if chosen is not None and name not in chosen:
                self.left_out.append(f"{name} judges the test cases: left out by --judges")
                continue
            start = ("python",) if arguments["judge"].startswith("openai:") else None  # one process asks an endpoint
            yield from self._step("judge", f"{name} judges the test cases", start, **arguments)

    def _training(self, run: int) -> Iterator[Step]:
        """One run of the training (sections 3.2 and 3.3); each checkpoint judges the test cases."""
        seed = {"seed": run} if run else {}
        for name in self._trained_before_rounds():
            yield from self._train(name, seed)
        for number in self.rounds:  # Algorithm 2
            # Paper: the suggestions are those of "our retrieval-augmented GPT-4"; without the chain they have no books.
            books = {"knowledge": "none"} if self.options.ablation == "no_chain" else {}
            yield from self._step(
                f"judge_training{number}", f"{self._judge_after(number - 1)} judges its training cases"
            )
            yield from self._step(f"introspect{number}", "its mistakes are discussed and revised", **books)
            yield from self._train(f"introspection{number}", seed)

    def _trained_before_rounds(self) -> tuple[str, ...]:
        if self.options.ablation == "no_curriculum":
            return ("no_curriculum",)
        return tuple(filter(self._has, ("vanilla", "vanilla_all"))) if self.options.ablation == "vanilla" else STAGES

    def _judge_after(self, rounds: int) -> str:
        """Return the judge after so many rounds of introspection."""
        return f"introspection{rounds}" if rounds else self._trained_before_rounds()[-1]

    def _train(self, name: str, seed: Mapping[str, int]) -> Iterator[Step]:
        """A training, and the verdicts of its checkpoint."""
        place, file, changes = self._checkpoint(name), name, dict(seed)
        if self.options.lora:  # the other arguments of lora.yaml are those of every stage, the paths those of stage 1
            file = "lora"
            for argument in ("model_name_or_path", "dataset_name", "dataset_train_split", "output_dir"):
                if name != STAGES[0]:
                    changes[argument] = self._value(name, argument)
        title = (
            (self.folder / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[1].removeprefix("# ").rstrip(".")
        )
        yield from self._step(file, f"training: {title}", **changes)
        yield from self._step("judge", f"{name} judges the test cases", judge=place, judge_name=name)

    def _reports(self) -> Iterator[Step]:
        """The report (sections 4.3, 4.4, Appendix F), an audit, which the paper does not have, and the tables."""
        judges = [self._judge_after(number) for number in (0, *self.rounds)]
        yield from self._step("report", "the report", **({"rounds": judges} if self.rounds else {}))
        if self._has("audit"):
            # The YAML has the judge after the last round.
            changes = {} if self.rounds else {"judge": self._checkpoint(judges[-1]), "judge_name": judges[-1]}
            yield from self._step("audit", f"the audit of {judges[-1]}", **changes)
        if self.options.ablation is None:  # ablations are compared, not shared
            yield from self._tables("table2", "table3", "figure4")

    def _tables(self, *names: str) -> Iterator[Step]:
        """Tables 2 and 3 and Figures 4 and 5, each a configuration of recipes/report.py.

        A folder may have none of them. One that should is noticed by its study.yaml, which lists what the study leaves.
        """
        others = self.judges.each.keys()
        absent = others - set(others if self.options.judges is None else self.options.judges)
        for name in filter(self._has, names):
            for step in self._step(name, TABLES[name]):
                judges = {judge for argument in NAMES for judge in comma_list(step.arguments.get(argument, []))}
                if missing := absent & judges:
                    self.left_out.append(f"{TABLES[name]}: left out, --judges leaves out {min(missing)}")
                else:
                    yield step

    def _publishing(self) -> Iterator[Step]:
        """Checks of data set, judge and metric for the Hub."""
        for what in ("dataset", "model", "metric"):
            yield from self._step(f"publish_{what}", f"the {what} is checked for the Hub; nothing is sent")

    def _comparison(self) -> Iterator[Step]:
        """What the paper does not have, and takes ratings of its own: calibration, and a comparison with few ratings."""
        yield from self._step("prepare_calibration", "training cases to calibrate with")
        yield from self._step("judge_likelihood_rated", "the likelihood judge reads rated cases")
        yield from self._step("calibrate", "and is put on the raters' scale by them")
        yield from self._step("compare", "the candidates, by many verdicts and few ratings")
