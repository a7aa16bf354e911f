"""A study: which cases and verdicts physicians are asked about, who they are, and what each is asked (paper, section 4.2).

A study is one YAML file; recipes/runs/automedeval-135m/annotate.yaml has comments on its keys. There are three kinds of item:
"rate" (score each response, and then the verdicts on them), "jury" (decide about a mistake without a consensus) and "prefer"
(which of two verdicts is better, without knowing whose they are).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from automedeval.annotation.jury_queue import Dispute, read_disputes
from automedeval.annotation.order import ORDERS, in_order
from automedeval.records import Case, RecordError, Verdict, as_shown, read_cases, read_placed
from automedeval.rubrics import TAGS, Questions, Rubric, RubricError, packaged_rubrics, read_questions, read_rubric

ROLES = ("attending", "chief")
KINDS = ("rate", "jury", "prefer")
# Parts of an assignment; the part on a judge's verdict is VERDICT and the judge's name.
RESPONSES, VERDICT, DECISION, PREFERENCE = "responses", "verdict:", "decision", "preference"
KEYS = (
    "title", "cases", "limit", "verdicts", "rubric", "verdict_rubric", *KINDS, "annotators", "order", "seed", "database",
)  # fmt: skip
PLAN_KEYS = {
    "rate": ("raters", "overlap", "roles", "judges", "verify_roles"),
    "jury": ("queue", "dataset", "raters", "roles"),
    "prefer": ("judges", "raters", "overlap", "roles"),
}


@dataclass(frozen=True)
class Annotator:
    """A physician who takes part; `role` is "attending" or "chief"."""

    name: str
    role: str


@dataclass(frozen=True)
class Plan:
    """How the items of one kind are given out.

    `raters` is how many annotators an ordinary item needs; the first `overlap` items need every annotator of the `roles`.
    `judges` are those whose verdicts are rated, or the two that are compared. Of `roles`, `verify_roles` rate verdicts.
    """

    kind: str
    raters: int
    overlap: int
    roles: tuple[str, ...]
    judges: tuple[str, ...]
    verify_roles: tuple[str, ...] = ROLES


@dataclass(frozen=True)
class Item:
    """What is to be done once for each of `needed` annotators: one case under one kind.

    `judges` are those whose verdicts are rated (none where the case has no valid one), or the two that are compared.
    """

    key: str
    kind: str
    case_id: str
    judges: tuple[str, ...]
    needed: int


@dataclass(frozen=True)
class Study:
    """A study as its file has it.

    Args:
        title, place: what it is called, and its file.
        rubric, verdict_questions: what is asked about responses, and about verdicts.
        cases: by id, each with the responses that are shown: its own, and the reference where a teacher was shown it as one.
        verdicts: (case id, judge) → the valid verdict with a rationale that is asked about.
        disputes: case id → what the jury is asked.
        plans: by kind, in the order of the file.
        items: in the order in which they are given out.
        database: SQLAlchemy URL; a relative SQLite path is relative to the working directory.
        fingerprint: twelve hexadecimal digits over what is asked and shown. A database of another study is refused; annotators
            and how items are given out may change.
        files: every file that was read, the study's own first.
    """

    title: str
    place: str
    rubric: Rubric
    verdict_questions: Questions
    cases: Mapping[str, Case]
    verdicts: Mapping[tuple[str, str], Verdict]
    disputes: Mapping[str, Dispute]
    annotators: tuple[Annotator, ...]
    plans: Mapping[str, Plan]
    items: tuple[Item, ...]
    seed: int
    database: str
    fingerprint: str
    files: tuple[str, ...] = ()

    def annotator(self, name: str) -> Annotator | None:
        """Return the annotator of this name, None if there is none."""
        return next((each for each in self.annotators if each.name == name), None)

    def case_of(self, item: Item) -> Case:
        """Return the case as it is shown for an item; the order of an assignment holds indices of its responses."""
        return self.disputes[item.case_id].case if item.kind == "jury" else self.cases[item.case_id]

    def rubric_of(self, item: Item) -> Rubric:
        """Return the rubric whose scale an item's scores of responses are on."""
        return self.disputes[item.case_id].rubric if item.kind == "jury" else self.rubric


def read_study(path: str | Path) -> Study:
    """Read a study's YAML and the files that it names.

    Of several verdicts of a judge on a case (orders, runs) the first one is asked about, by run and order. A verdict that is
    invalid, or has no rationale, is not asked about: there is nothing to rate.

    Raises:
        RecordError: one line "FILE: KEY: what is wrong and what is allowed", or a fault of a file that it names.
    """
    return _Reader(str(path)).study()


class _Reader:
    """Checks one file, key by key; every complaint starts with the file's name and the key."""

    def __init__(self, place: str):
        self.place = place
        self.files = [place]

    def fail(self, key: str, problem: str) -> None:
        raise RecordError(f"{self.place}: {key}: {problem}")

    def take(self, mapping: Mapping[str, Any], key: str, kind: type, default: Any = ..., inside: str = "") -> Any:
        value = mapping.get(key, default)
        if value is ...:
            self.fail(inside + key, "is missing")
        if key in mapping and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            words = {str: "a text", int: "a whole number", list: "a list", dict: "a mapping"}
            self.fail(inside + key, f"must be {words[kind]}, not {value!r}")
        return value

    def texts(self, mapping: Mapping[str, Any], key: str, default: Any = ..., inside: str = "") -> tuple[str, ...]:
        """Return one text or a list of texts as a tuple without repetitions."""
        value = mapping.get(key, default)
        if value is ...:
            self.fail(inside + key, "is missing")
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list | tuple) or not all(isinstance(each, str) and each for each in values):
            self.fail(inside + key, f"must be a text or a list of texts, not {value!r}")
        if len(set(values)) < len(values):
            self.fail(inside + key, f"names one twice: {', '.join(values)}")
        return tuple(values)

    def only(self, mapping: Any, known: Sequence[str], inside: str = "") -> None:
        if not isinstance(mapping, dict):
            self.fail(inside.rstrip(".") or "the file", f"must be a mapping with the keys {', '.join(known)}")
        for key in mapping:
            if key not in known:
                self.fail(f"{inside}{key}", f"unknown key; known are {', '.join(known)}")

    # --- the whole ---

    def study(self) -> Study:
        try:
            content = yaml.safe_load(Path(self.place).read_text(encoding="utf-8"))
        except OSError as error:
            raise RecordError(f"{self.place}: {error.strerror or error}") from None
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise RecordError(f"{self.place}: not YAML: {' '.join(str(error).split())}") from None
        self.only(content, KEYS)
        title, database = self.take(content, "title", str), self.database(self.take(content, "database", str))
        seed, order = self.take(content, "seed", int, 0), self.take(content, "order", str, "file")
        if order not in ORDERS:
            self.fail("order", f"must be one of {', '.join(ORDERS)}, not {order!r}")
        annotators = self.annotators(content)
        rubric, questions = self.rubrics(content)
        every = self.cases(content)
        limit = self.take(content, "limit", int, len(every))
        if limit < 1:
            self.fail("limit", f"must be at least 1, not {limit}")
        cases = dict(list(every.items())[:limit])
        valid = self.verdicts(content, cases, rubric)
        if order == "uncertainty" and not valid:
            self.fail("order", "uncertainty needs verdicts, and there is none that is valid")
        for (case_id, _), verdict in valid.items():
            if (shown := as_shown(every[case_id], verdict)) is not every[case_id]:
                cases[case_id] = shown
        verdicts = {key: verdict for key, verdict in valid.items() if verdict.rationale}
        plans = {kind: self.plan(kind, content[kind], annotators, verdicts) for kind in content if kind in KINDS}
        if not plans:
            self.fail("the file", f"asks nothing: it needs one of {', '.join(KINDS)} at least")
        disputes = self.disputes(content, every, rubric) if "jury" in plans else {}
        by_case: dict[str, list[Verdict]] = {}
        for (case_id, _), verdict in valid.items():
            by_case.setdefault(case_id, []).append(verdict)
        items = []
        for plan in plans.values():
            ids = [name for name, dispute in disputes.items() if not dispute.decided] if plan.kind == "jury" else cases
            new = _items(plan, in_order(list(ids), order, seed, by_case), verdicts, annotators)
            if not new and plan.kind != "jury":
                self.fail(plan.kind, f"no case has a valid verdict of both {' and '.join(plan.judges)}")
            items += new
        return Study(
            title=title,
            place=self.place,
            rubric=rubric,
            verdict_questions=questions,
            cases=cases,
            verdicts=verdicts,
            disputes=disputes,
            annotators=annotators,
            plans=plans,
            items=tuple(items),
            seed=seed,
            database=database,
            fingerprint=_fingerprint(rubric, questions, cases, verdicts, disputes),
            files=tuple(self.files),
        )

    def database(self, given: str) -> str:
        """Return the database's URL; a value without "://" is the path of an SQLite file."""
        try:
            url = make_url(given if "://" in given else f"sqlite:///{given}")
        except ArgumentError:
            self.fail("database", "must be the path of an SQLite file, sqlite:///PATH or postgresql://HOST/NAME")
        if url.password or {"password", "sslpassword", "passfile", "service"} & url.query.keys():
            self.fail("database", "holds a password: leave it out here, PGPASSWORD or a .pgpass file gives it")
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            self.fail("database", f"must be sqlite or postgresql, not {url.get_backend_name()}")
        if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
            self.fail("database", "needs a file: what is kept in memory alone is lost")
        return str(url)

    def annotators(self, content: Mapping[str, Any]) -> tuple[Annotator, ...]:
        found: dict[str, Annotator] = {}
        for number, entry in enumerate(self.take(content, "annotators", list)):
            inside = f"annotators[{number}]."
            self.only(entry, ("name", "role"), inside)
            name, role = (self.take(entry, key, str, inside=inside) for key in ("name", "role"))
            if not name.strip() or not name.isprintable() or len(name) > 80:
                self.fail(f"{inside}name", f"must be 1 to 80 printable characters, not {name!r}")
            if role not in ROLES:
                self.fail(f"{inside}role", f"must be one of {', '.join(ROLES)}, not {role!r}")
            if name in found:
                self.fail(f"{inside}name", f"{name!r} came before")
            found[name] = Annotator(name, role)
        if not found:
            self.fail("annotators", "needs one annotator at least")
        return tuple(found.values())

    def rubrics(self, content: Mapping[str, Any]) -> tuple[Rubric, Questions]:
        given = self.take(content, "rubric", str, "automedeval")
        own = self.take(content, "verdict_rubric", str, None)
        try:
            rubric = read_rubric(given)
        except RubricError as error:
            self.fail("rubric", str(error))
        try:
            questions = read_questions(own)
        except RubricError as error:
            self.fail("verdict_rubric", str(error))
        self.files += [file for file in (given, own) if file and file.endswith((".yaml", ".yml"))]
        template = Path(given).parent / rubric.template
        if given in self.files and template.is_file():  # a rubric of one's own may have it beside
            self.files.append(str(template))
        if "rate" in content and not rubric.scale:
            self.fail(
                "rubric", f"{rubric.name} gives choices about pairs; rating responses needs a rubric with a scale"
            )
        if unknown := [tag for tag in questions.tags if tag not in TAGS]:
            self.fail("verdict_rubric", f"the tag {unknown[0]!r} is none of {', '.join(TAGS)}")
        return rubric, questions

    def cases(self, content: Mapping[str, Any]) -> dict[str, Case]:
        found: dict[str, Case] = {}
        for file in self.texts(content, "cases"):
            self.files.append(file)
            for case in read_cases(file):
                if case.id in found:
                    self.fail("cases", f"the id {case.id!r} of {file} stands in another file already")
                found[case.id] = case
        return found

    def verdicts(
        self, content: Mapping[str, Any], cases: Mapping[str, Case], rubric: Rubric
    ) -> dict[tuple[str, str], Verdict]:
        """Return the valid verdicts on the cases by the study's rubric; those on other cases, or by others, are passed over."""
        found: dict[tuple[str, str], Verdict] = {}
        for given in self.texts(content, "verdicts", ()):
            file = str(Path(given) / "verdicts.jsonl") if Path(given).is_dir() else given
            self.files.append(file)
            for place, verdict in read_placed(file, Verdict):
                case = cases.get(verdict.case_id)
                if case is None or not verdict.valid or verdict.rubric != rubric.name:
                    continue
                try:
                    shown = as_shown(case, verdict)
                except RecordError as error:
                    raise RecordError(f"{place}: {error}") from None
                if verdict.extra.get("case_digest", case.digest) not in (case.digest, shown.digest):
                    raise RecordError(f"{place}: the case {case.id!r} has changed since it was judged")
                slots = range(len(shown.responses))
                fits = len(set(verdict.order)) == len(verdict.order) > 0 and set(verdict.order) <= set(slots)
                if not fits or any(
                    s is not None and len(s) != len(slots) for s in (verdict.scores, verdict.expected_scores)
                ):
                    raise RecordError(f"{place}: its order or scores do not fit the {len(slots)} responses")
                key = (verdict.case_id, verdict.judge)
                if key not in found or (verdict.run, verdict.order) < (found[key].run, found[key].order):
                    found[key] = verdict
        return found

    def disputes(self, content: Mapping[str, Any], cases: Mapping[str, Case], rubric: Rubric) -> dict[str, Dispute]:
        queue, dataset = (self.take(content["jury"] or {}, key, str, inside="jury.") for key in ("queue", "dataset"))
        self.files += [queue, str(Path(dataset) / "revisions.jsonl")]
        known = {each.name: each for each in (*map(read_rubric, packaged_rubrics()), rubric)}
        return read_disputes(queue, dataset, cases, known)

    # --- who is asked what ---

    def plan(
        self,
        kind: str,
        given: Any,
        annotators: Sequence[Annotator],
        verdicts: Mapping[tuple[str, str], Verdict],
    ) -> Plan:
        given, inside = {} if given is None else given, f"{kind}."
        self.only(given, PLAN_KEYS[kind], inside)
        raters, overlap = (self.take(given, key, int, least, inside) for key, least in (("raters", 1), ("overlap", 0)))
        # Paper: chief physicians verify the data set and are the jury; all five doctors rate responses and verdicts.
        roles = self.texts(given, "roles", ("chief",) if kind == "jury" else ROLES, inside)
        verify_roles = self.texts(given, "verify_roles", ROLES, inside)
        for key, names in (("roles", roles), ("verify_roles", verify_roles)):
            if wrong := [name for name in names if name not in ROLES]:
                self.fail(inside + key, f"{wrong[0]!r} is not one of {', '.join(ROLES)}")
        able = sum(each.role in roles for each in annotators)
        if not 1 <= raters <= able:
            self.fail(f"{inside}raters", f"must be from 1 to the {able} annotators with the roles, not {raters}")
        if overlap < 0:
            self.fail(f"{inside}overlap", f"must be at least 0, not {overlap}")
        known = list(dict.fromkeys(judge for _, judge in verdicts))
        judges = () if kind == "jury" else self.texts(given, "judges", ... if kind == "prefer" else known, inside)
        if kind == "prefer" and len(judges) != 2:
            self.fail(f"{inside}judges", f"must name two judges, not {len(judges)}")
        if missing := [judge for judge in judges if judge not in known]:
            there = f"there are {', '.join(known)}" if known else "there is none of any judge"
            self.fail(f"{inside}judges", f"no valid verdict with a rationale of {missing[0]!r} on these cases; {there}")
        return Plan(kind, raters, overlap, roles, judges, verify_roles)


def _items(
    plan: Plan,
    case_ids: Sequence[str],
    verdicts: Mapping[tuple[str, str], Verdict],
    annotators: Sequence[Annotator],
) -> list[Item]:
    able = sum(each.role in plan.roles for each in annotators)
    items: list[Item] = []
    for case_id in case_ids:
        judges = tuple(judge for judge in plan.judges if (case_id, judge) in verdicts)
        if plan.kind == "prefer" and len(judges) < 2:
            continue
        key = "/".join((plan.kind, case_id, *(judges if plan.kind == "prefer" else ())))
        items.append(Item(key, plan.kind, case_id, judges, able if len(items) < plan.overlap else plan.raters))
    return items


def _fingerprint(
    rubric: Rubric,
    questions: Questions,
    cases: Mapping[str, Case],
    verdicts: Mapping[tuple[str, str], Verdict],
    disputes: Mapping[str, Dispute],
) -> str:
    def told(verdict: Verdict) -> list[Any]:
        return [verdict.case_id, verdict.judge, verdict.order, verdict.rationale, verdict.scores]

    asked = [rubric.fingerprint, questions.fingerprint]
    asked += sorted([case.id, case.digest] for case in cases.values())
    asked += sorted(([*key, *told(verdict)] for key, verdict in verdicts.items()), key=json.dumps)
    asked += sorted(
        ([*told(each.recorded), each.order, told(each.judged)] for each in disputes.values()), key=json.dumps
    )
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]
