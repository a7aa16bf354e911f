"""What every step of a study reads and writes, and whether each file that is read is written by somebody.

The paths stand in the arguments of the recipes. The tables here say which arguments they are: a name means the same in every
recipe. A value with a slash in any other argument is an error, so that no path goes unchecked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from study.steps import NAMES, TEMPLATES, Step, StudyError, comma_list, judge_name, read_yaml

# Arguments that name models, as folders, Hub ids or KIND:MODEL.
MODELS = {
    "judge", "suggester", "reviewer", "candidates", "encoder", "tokenizer", "model_name_or_path", "bert_model", "bart_model",
}  # fmt: skip
# Arguments that name files or folders, some of them as NAME=FILE.
FILES = {
    "input", "ids", "books", "store", "cases", "verdicts", "ratings", "verdict_ratings", "choices", "preferences", "labels",
    "plan", "evaluation_cases", "rubric", "rubrics", "dataset", "fit", "jury", "probabilities",
    "chat_template_path", "tokenizer_template", "teacher_verdicts", "perturbations", "agreement",
    "audit", "folder", "study", "card",
}  # fmt: skip
# Recipes whose output no step has to read.
FOR_PEOPLE = {"report", "check", "compare", "audit", "publish"}
NOT_PATHS = {"repo", "base_model", "base_url"}  # of the Hub, or of an endpoint
OWN = ("src", "recipes", "accelerate_configs", "model_card.md")  # what the repository holds
PLANS = "plans"  # where a rehearsal puts its plans, with small counts


@dataclass(frozen=True)
class UserFile:
    """A file that the user brings.

    Attributes:
        path: where it has to be.
        what: what it is.
        get: the command that gets it, or what to do.
        stand_in: what a rehearsal takes in its place.
        of: the files of the study that people rate in it; until these are there it cannot be.
        hub: whether it is a data set's id, and the recipe itself reads it from the Hub.
    """

    path: str
    what: str
    get: str
    stand_in: str
    of: tuple[str, ...] = ()
    hub: bool = False

    def there(self, root: Path) -> bool:
        """Return whether it is on this machine; of a folder, whether anything is in it."""
        place = root / self.path
        return any(place.iterdir()) if place.is_dir() else place.is_file()


class Lists(NamedTuple):
    """The lists of a run's study.yaml.

    Attributes:
        brings: what the user brings, by path.
        leaves: what each variant leaves: path → what it is.
        cases: the questions that a teacher judges; a rehearsal makes the counts of the plan smaller in proportion.
        counts: file → the paper's number of its records, None if the paper gives none; in the order of the study.
        then: what to try when the study has ended, each with its command.
        listed: the keys of a study that lists its steps, see `listed_steps`; else empty.
    """

    brings: dict[str, UserFile]
    leaves: dict[str, dict[str, str]]
    cases: int
    counts: dict[str, int | None]
    then: dict[str, str]
    listed: dict[str, Any]

    def read_by(self, steps: Sequence[Step]) -> "Lists":
        """Return the lists with only what these steps read of what the user brings."""
        taken = {path for step in steps for path, _ in reads(step)}
        return self._replace(brings={path: each for path, each in self.brings.items() if path in taken})


def read_lists(folder: Path, root: Path, listing_allowed: bool = True) -> Lists:
    """Read the study.yaml of a run's folder; one that lists its steps takes the lists of the study `of` whose YAMLs they are.

    Args:
        root: the repository.
        listing_allowed: whether it may list its steps; the study `of` that another one takes its YAMLs may not.
    """
    file = folder / "study.yaml"
    content, listing = read_yaml(file), {"of", "place", "steps"}
    if unknown := content.keys() - {"brings", "leaves", "cases", "counts", "then", *listing}:
        raise StudyError(f"{file}: unknown key {min(unknown)!r}")
    listed = {key: content[key] for key in listing & content.keys()}
    if listed and listing - listed.keys():
        raise StudyError(f"{file}: of, place and steps belong together: {min(listing - listed.keys())} is missing")
    if listed and not listing_allowed:
        raise StudyError(f"{file}: lists its steps itself: `of` must name a folder whose own YAMLs are the study")
    other = read_lists(root / listed["of"], root, False) if listed else Lists({}, {}, 0, {}, {}, {})
    brings, needed = dict(other.brings), {"what", "get", "stand_in"}
    for path, about in content.get("brings", {}).items():
        if not isinstance(about, dict) or needed - about.keys() or about.keys() - needed - {"of", "hub"}:
            raise StudyError(f"{file}: {path} must have the keys what, get and stand_in, and may have of and hub")
        brings[path] = UserFile(path, **about | {"of": tuple(about.get("of", ()))})
    leaves = {
        variant: left if isinstance(left, dict) else dict.fromkeys(left, "")
        for variant, left in content.get("leaves", {}).items()
    }
    cases, counts, then = content.get("cases", other.cases), content.get("counts", {}), content.get("then", {})
    return Lists(brings, leaves, cases, counts, then, listed)


def reads(step: Step) -> Iterator[tuple[str, str]]:
    """Yield (path, argument) for every file that a step reads; a data set's split is a file of it."""
    arguments = step.arguments
    if "--config_file" in step.launch:
        words = list(step.launch)
        machine = words[words.index("--config_file") + 1]
        yield machine, "--config_file"
        if Path(machine).is_file() and (deepspeed := read_yaml(Path(machine)).get("deepspeed_config")):
            yield deepspeed["deepspeed_config_file"], "deepspeed_config_file"
    if step.recipe == "sft":
        parts = [(part["path"], part["split"]) for part in arguments.get("datasets", ())]
        parts = parts or [(arguments["dataset_name"], arguments["dataset_train_split"])]
        for path, split in parts:
            yield f"{path}/{split}.parquet", "dataset_name"
    for argument, value in arguments.items():
        if argument not in MODELS | FILES or argument == step.output[0] or value is None:
            continue
        if argument == "judge" and step.recipe in ("publish", "calibrate"):  # a name in verdicts or reports
            continue
        for entry in value if isinstance(value, list) else [value]:
            if path := _path(argument, str(entry)):
                yield path, argument


def _path(argument: str, value: str) -> str | None:
    """Return the path in a value, None for what is none: an endpoint's model, a baseline, the packaged judge or rubric."""
    if argument in MODELS:
        kind, colon, rest = value.partition(":")
        if colon and kind in ("openai", "baseline"):
            return None
        value = rest if colon and kind in ("likelihood", "small", "recording", "ratings") else value
        return None if value == "none" or (argument, value) == ("judge", "small") else value
    if (value == "none" and argument in TEMPLATES) or (argument in NAMES and not value.endswith(".jsonl")):
        return None
    if argument in ("rubric", "rubrics") and not value.endswith((".yaml", ".yml")):
        return None
    return value.rpartition("=")[2]  # NAME=FILE


def writes(step: Step) -> list[str]:
    """Return the paths that a step writes."""
    argument, names = step.output
    if argument is None:
        return []
    place = str(step.arguments[argument]).rstrip("/")
    paths = [f"{place}/{name}" if name else place for name in names]
    if step.recipe == "build_dataset":
        plan = Path(step.arguments["plan"])
        stages = read_yaml(plan).get("stages", {}) if plan.is_file() else {}
        paths += [f"{place}/{split}.parquet" for split in (*stages, "test")]
    return paths


def faults(steps: Sequence[Step], lists: Lists, variant: str | None) -> list[str]:
    """Return what is wrong with the paths of a study, one line each: then no step can be run.

    Args:
        variant: the ablation, "lora", or None for the study itself.
    """
    errors, writers, later, judges = [], {}, {}, set()
    for step in steps:
        for path in writes(step):
            later.setdefault(path, step)
    taken = set()
    for step in steps:
        for name, value in step.arguments.items():
            path_names = MODELS | FILES | NOT_PATHS | {step.output[0], "datasets", "dataset_name", *NAMES}
            if name not in path_names and isinstance(value, str) and "/" in value:
                errors.append(f"{step.file}: {name}: {value} looks like a path, and is no argument that names files")
        for path, argument in reads(step):
            whose = f" ({step.about})" if argument in step.changes else ""
            place = f"{step.file}{whose}: {argument}: {path}"
            taken.add(path)
            if path in writers or path in lists.brings:
                continue
            if path in later:
                errors.append(f"{place} is written later than it is read, by {later[path].file.name}")
            elif Path(path).parts[0] in (*OWN, PLANS) or argument in ("--config_file", "deepspeed_config_file"):
                errors += [] if Path(path).exists() else [f"{place}: there is no such file"]
            else:
                errors.append(f"{place}: no earlier step writes it, and study.yaml does not list it as brought")
        writers |= dict.fromkeys(writes(step), step)
        if step.recipe == "judge":
            judges.add(judge_name(step.arguments))
        for argument in NAMES if step.recipe == "report" else ():
            for name in comma_list(step.arguments.get(argument, [])):
                if not name.endswith(".jsonl") and name not in judges:  # an endpoint's model may have a slash
                    errors.append(f"{step.file}: {argument}: {name} is no judge of an earlier step")
    for path, brought in lists.brings.items():
        errors += [
            f"study.yaml: {path} is of {file}, which no step writes" for file in brought.of if file not in writers
        ]
    if variant is None:  # a variant makes again what the study has, and reads a part of it
        errors += [f"study.yaml: brings {path}, which no step reads" for path in lists.brings if path not in taken]
        for step in steps:
            if step.recipe not in FOR_PEOPLE and taken.isdisjoint(writes(step)):
                errors.append(f"{step.file}: {step.output[0]}: {writes(step)[0]} is read by no step")
    left = lists.leaves.get(variant or "study", {}) | (lists.counts if variant is None else {})
    errors += [f"study.yaml: leaves {path}, which no step writes" for path in left if path not in writers]
    return list(dict.fromkeys(errors))
