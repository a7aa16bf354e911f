"""The curriculum: which teacher's verdict each case carries, and which stage it is trained in (paper section 3.2, Table 1).

A plan is a declared YAML file: test cases apart, one teacher for each other case, stages by count, share or what is left. Ids
and small facts go in, an assignment comes out. What is chosen depends on the ids and the seed, never on the order of the input.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from automedeval.dataset.verification import Rule
from automedeval.records import RecordError

QUALITIES = ("high", "low", "any")
Key = tuple[str, str]  # (case id, teacher)


@dataclass(frozen=True)
class Take:
    """How many of what there is: a count, a share ("50%", rounded down), or the rest (neither)."""

    count: int | None = None
    share: Fraction | None = None

    @classmethod
    def parse(cls, value: Any, place: str) -> "Take":
        """Read 1911, "50%" or "rest"; a fault is a RecordError that begins with `place`."""
        if value == "rest":
            return cls()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(count=value)
        percent = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if isinstance(value, str) else None
        if percent and Fraction(percent[1]) <= 100:
            return cls(share=Fraction(percent[1]) / 100)
        raise RecordError(f"{place}: take: must be a count like 1911, a share like 50%, or rest, not {value!r}")

    @property
    def rest(self) -> bool:
        return self.count is None and self.share is None

    def of(self, there: int) -> int:
        """Return how many that are; a count may be more than `there`."""
        if self.rest:
            return there
        return self.count if self.share is None else int(self.share * there)


@dataclass(frozen=True)
class Part:
    """Some of one teacher's verdicts, of one quality or any."""

    teacher: str
    take: Take
    quality: str = "any"

    def fits(self, quality: str | None) -> bool:
        return self.quality in ("any", quality)

    def __str__(self) -> str:
        return self.teacher if self.quality == "any" else f"{self.teacher}, quality {self.quality}"


@dataclass(frozen=True)
class Plan:
    """A plan as its file has it.

    `test` names the teacher whose verdict a test case carries and how many there are; with `test_file` the cases of that file
    are the test cases instead. `teachers` stand in the order in which they choose; `stages` are in the order of training.
    """

    place: str
    test: Part
    teachers: tuple[Part, ...]
    stages: dict[str, tuple[Part, ...]]
    test_file: str | None = None
    verification: Rule = field(default_factory=Rule)
    seed: int = 0

    @property
    def asks_for_quality(self) -> bool:
        parts = [self.test, *self.teachers, *(part for stage in self.stages.values() for part in stage)]
        return any(part.quality != "any" for part in parts)


@dataclass
class Assignment:
    """Which verdicts go where: split → (case id, teacher) in the order of training, the stages first and then "test".

    `apart` are the ids of all test cases, whether or not they have a verdict; `lines` tell the arithmetic.
    """

    splits: dict[str, list[Key]]
    apart: list[str]
    lines: list[str]

    @property
    def training(self) -> list[Key]:
        return [key for name, keys in self.splits.items() if name != "test" for key in keys]


def read_plan(path: str | Path) -> Plan:
    """Read and check a plan.

    Raises:
        RecordError: the file cannot be read, or a key is missing, unknown or wrong; the message names file and key.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{path}: {' '.join(str(error).split())}") from None
    content = _mapping(
        content, str(path), ("seed", "verification", "test", "teachers", "stages"), ("teachers", "stages")
    )
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise RecordError(f"{path}: seed: must be a whole number, not {seed!r}")
    teachers = []
    for name, value in _mapping(content["teachers"], f"{path}: teachers").items():
        place = f"{path}: teachers.{name}"
        teachers.append(_part({"teacher": name, **_mapping(value, place, ("take", "quality"))}, place, ()))
    known = tuple(part.teacher for part in teachers)
    stages = {}
    for name, value in _mapping(content["stages"], f"{path}: stages").items():
        if not re.fullmatch(r"\w+", name) or name == "test":
            raise RecordError(f"{path}: stages: {name!r} cannot be a stage's name")
        if not isinstance(value, list) or not value:
            raise RecordError(f"{path}: stages.{name}: must be a list of parts like {{teacher: strong, take: rest}}")
        stages[name] = tuple(_part(part, f"{path}: stages.{name}[{at}]", known) for at, part in enumerate(value))
    test = _mapping(content.get("test", {"take": 0}), f"{path}: test", ("file", "take", "teacher", "quality"))
    file = test.get("file")
    if (file is None) == ("take" not in test) or not isinstance(file, str | None):
        raise RecordError(
            f"{path}: test: needs either take (a count or a share) or file (its cases are the test cases)"
        )
    part = {"teacher": known[0], "take": "rest", **{key: value for key, value in test.items() if key != "file"}}
    plan = Plan(
        str(path),
        _part(part, f"{path}: test", known),
        tuple(teachers),
        stages,
        file,
        Rule.from_dict(content.get("verification", {}), f"{path}: verification"),
        seed,
    )
    if file is None and plan.test.take.rest:
        raise RecordError(f"{path}: test: take: the rest would leave nothing to train on")
    _check_rests(plan)
    return plan


def assign(plan: Plan, verdicts: Mapping[Key, str | None], test_ids: Iterable[str] = ()) -> Assignment:
    """Give every case one teacher's verdict or make it a test case, and every verdict that trains a stage.

    Args:
        plan: what is asked for.
        verdicts: (case id, teacher) of every verdict that may be used → its quality, None if nobody knows it.
        test_ids: the test cases, where the plan names a file of them; they never train, whether or not they have a verdict.

    Raises:
        RecordError: the plan asks for more than there is, or for a quality that is not known.
    """
    unknown = sum(quality is None for quality in verdicts.values())
    if unknown and plan.asks_for_quality:
        raise RecordError(
            f"{plan.place}: asks for quality, and {unknown:,} of {len(verdicts):,} verdicts have none: "
            "give --labels, --corrupt true or --classifier"
        )
    apart = set(test_ids)
    pool = [case for case, teacher in verdicts if teacher == plan.test.teacher]
    pool = [case for case in pool if plan.test.fits(verdicts[case, plan.test.teacher])]
    if plan.test_file is None:
        apart = set(_first(plan, "test", pool, plan.test.take.of(len(pool)), f"test: asks for %s of {plan.test}"))
    test = [(case, plan.test.teacher) for case in shuffled(plan.seed, "test", apart & set(pool))]
    carried, lines = _choose_teachers(plan, verdicts, apart)
    lines.insert(0, f"test: {len(apart):,} cases apart, {len(test):,} of them with a verdict of {plan.test}")

    stage_of: dict[str, str] = {}
    for rest in (False, True):  # what is asked for by number comes first, then whoever takes what is left
        for stage, parts in plan.stages.items():
            for part in parts:
                if part.take.rest != rest:
                    continue
                there = [case for case, teacher in carried.items() if teacher == part.teacher]
                there = [case for case in there if part.fits(verdicts[case, part.teacher])]
                free = [case for case in there if case not in stage_of]
                number = len(free) if rest else part.take.of(len(there))
                for case in _first(plan, stage, free, number, f"{stage}: asks for %s of {part}"):
                    stage_of[case] = stage
    splits: dict[str, list[Key]] = {}
    for stage in plan.stages:
        chosen = shuffled(plan.seed, f"order of {stage}", (case for case, name in stage_of.items() if name == stage))
        splits[stage] = [(case, carried[case]) for case in chosen]
        counts = Counter(teacher for _, teacher in splits[stage])
        lines.append(f"{stage}: {_counted(counts, plan)}")
    unused = len(carried) - len(stage_of)
    if unused:
        lines.append(f"{unused:,} cases are in no stage")
    return Assignment(splits | {"test": test}, sorted(apart), lines)


def _choose_teachers(
    plan: Plan, verdicts: Mapping[Key, str | None], apart: set[str]
) -> tuple[dict[str, str], list[str]]:
    """Return case → the one teacher whose verdict it carries, and the arithmetic.

    A teacher prefers cases that no later teacher could take, so that as many cases as possible get a verdict.
    """
    able: dict[str, set[str]] = {}
    for part in plan.teachers:
        able[part.teacher] = {
            case
            for (case, teacher), quality in verdicts.items()
            if teacher == part.teacher and case not in apart and part.fits(quality)
        }
    cases = set().union(*able.values())
    carried: dict[str, str] = {}
    for at, part in enumerate(plan.teachers):
        free = [case for case in able[part.teacher] if case not in carried]
        later = set().union(*(able[other.teacher] for other in plan.teachers[at + 1 :]))
        only, both = [case for case in free if case not in later], [case for case in free if case in later]
        number = len(free) if part.take.rest else part.take.of(len(cases))
        tag, told = f"teacher {part.teacher}", f"teachers.{part.teacher}: asks for %s of {part}"
        if number > len(free):
            _first(plan, tag, free, number, told)  # raises
        for case in [*shuffled(plan.seed, tag, only), *shuffled(plan.seed, tag, both)][:number]:
            carried[case] = part.teacher
    line = f"training: {len(cases):,} cases → {_counted(Counter(carried.values()), plan)}"
    left = len(cases) - len(carried)
    return carried, [line + (f", {left:,} with no teacher left to take them" if left else "")]


def _counted(counts: Counter, plan: Plan) -> str:
    parts = [f"{counts[part.teacher]:,} {part.teacher}" for part in plan.teachers if counts[part.teacher]]
    return f"{counts.total():,}" + (f" = {' + '.join(parts)}" if parts else "")


def shuffled(seed: int, purpose: str, things: Iterable[Any]) -> list[Any]:
    """Return ids, or tuples of ids, in an order that only they, the seed and the purpose decide."""

    def rank(thing: Any) -> tuple[bytes, Any]:
        return hashlib.sha256(f"{seed}:{purpose}:{thing!r}".encode()).digest(), thing

    return sorted(things, key=rank)


def _first(plan: Plan, purpose: str, cases: Sequence[str], number: int, told: str) -> list[str]:
    """Return `number` of the cases, chosen by the seed; `told` says who asks, with %s for the number."""
    if number > len(cases):
        raise RecordError(f"{plan.place}: {told.replace('%s', f'{number:,}')}, and there are {len(cases):,}")
    return shuffled(plan.seed, purpose, cases)[:number]


def _mapping(value: Any, place: str, known: Sequence[str] = (), needed: Sequence[str] = ()) -> dict:
    if not isinstance(value, dict) or not value:
        raise RecordError(f"{place}: must be a mapping, not {value!r}")
    for key in value:
        if not isinstance(key, str) or (known and key not in known):
            raise RecordError(f"{place}: unknown key {key!r}" + (f"; known are {', '.join(known)}" if known else ""))
    for key in needed:
        if key not in value:
            raise RecordError(f"{place}: {key!r} is missing")
    return value


def _part(value: Any, place: str, teachers: Sequence[str]) -> Part:
    value = _mapping(value, place, ("teacher", "take", "quality"), ("teacher", "take"))
    if teachers and value["teacher"] not in teachers:
        raise RecordError(f"{place}: teacher: {value['teacher']!r} is not one of {', '.join(teachers)}")
    quality = value.get("quality", "any")
    if quality not in QUALITIES:
        raise RecordError(f"{place}: quality: must be one of {', '.join(QUALITIES)}, not {quality!r}")
    return Part(value["teacher"], Take.parse(value["take"], place), quality)


def _check_rests(plan: Plan) -> None:
    """Refuse two parts that both take the rest of the same verdicts."""
    rests = [(stage, part) for stage, parts in plan.stages.items() for part in parts if part.take.rest]
    for at, (stage, part) in enumerate(rests):
        for other, earlier in rests[:at]:
            same_quality = "any" in (part.quality, earlier.quality) or part.quality == earlier.quality
            if part.teacher == earlier.teacher and same_quality:
                raise RecordError(f"{plan.place}: {other} and {stage} both take the rest of {part}")
