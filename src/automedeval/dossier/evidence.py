"""The evidence of a report: its files and those that its command names, records beside them, prompts, and the judge's card."""

import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from automedeval.cli import parse
from automedeval.meta_evaluation.report.arguments import ReportArguments
from automedeval.meta_evaluation.report.grid import FLAGS
from automedeval.models.arguments import EncoderArguments, parse_model
from automedeval.records import AutoMedEvalError, RecordError, named_file, read_lines, read_text, verdicts_file
from automedeval.rubrics import read_rubric
from automedeval.rubrics.prompts import prompt_fingerprint
from automedeval.rubrics.rubric import rubric_files, without_scale

# The result of a report → the name of its pages.
RESULTS = {"agreement.json": "report", "criteria.json": "criteria", "harm.json": "harm"}
PEOPLE = ("ratings", "choices", "verdict_ratings", "preferences", "criterion_labels", "harm_ratings")
CARDS = {"judge": "judges/packaged/small", "checker": "claims/packaged/small"}  # of the packaged small judge
AUDIT_FILES = (
    "audit.*",
    "run.json",
    "*/trials.jsonl",
    "*/clean/*.json*",
    "*/trials/*.json*",
)  # nothing else beside them
LIMITS = re.compile(r"limit|\bnot\b|neither|scope|audit|ethic", re.I)  # in the heading of a card's section


@dataclass
class Evidence:
    """The files behind a report.

    Args:
        report: the path in the pack of agreement.json, criteria.json or harm.json.
        judge: the name of the judge whose ranking the report shows.
        documents: path in the pack → content, of the report's result and of the record of the judge's run.
        files: path in the pack → the file, or its content.
        run: the path in the pack of the record of the judge's run; empty if it is not there.
        judged_by: the judge as that run named it, as "openai:MODEL"; empty if not known.
        prompts: "rubric" and "fingerprint" of the prompts, if the judge reads some.
        gaps: what is not there, a sentence each.
    """

    report: str
    judge: str
    documents: dict[str, Any]
    files: dict[str, Path | bytes] = field(default_factory=dict)
    run: str = ""
    judged_by: str = ""
    prompts: dict[str, str] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)

    def add(self, option: str, place: str | Path | None, folder: str) -> None:
        """Add the file that an option of the report names; a gap if it is not there."""
        if place and Path(place).is_file():
            self.files[f"{folder}/{Path(place).name}"] = Path(place)
        elif place:
            self.gaps.append(f"--{option} {place}: there is no such file from this folder, and none in the pack.")


def gather(folder: Path) -> Evidence:
    """Return the evidence of the report in a folder; RecordError if it holds no report."""
    name = next((name for name in RESULTS if (folder / name).is_file()), None)
    if name is None:
        raise RecordError(f"{folder}: no {' or '.join(RESULTS)}: automedeval report did not write this folder")
    try:
        result = json.loads(read_text(folder / name))
        judges = result["judges"] or result["raters"]
        judge = (result.get("main_judge") or {}).get("name") or next(iter(judges))
        settings, rubric = (judges[judge].get(key) for key in ("settings", "rubric"))
        words = shlex.split(result["settings"]["command"])[2:]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        raise RecordError(f"{folder / name}: automedeval report did not write this file ({error!r})") from None
    evidence = Evidence(f"report/{name}", judge, {f"report/{name}": result})
    for each in (*RESULTS, *(f"{page}.{end}" for page in RESULTS.values() for end in ("html", "md")), FLAGS):
        if (folder / each).is_file():
            evidence.files[f"report/{each}"] = folder / each
    try:
        args, _ = parse((ReportArguments, EncoderArguments), "", words)
    except RecordError as error:
        evidence.gaps = [f"This version does not read the report's command ({error}): its inputs are not in the pack."]
        return evidence
    for option in ("cases", "rubric", *PEOPLE):
        place = getattr(args, option)
        evidence.add(option, place, option)
        jury = place and option in PEOPLE and Path(place).with_name("jury.jsonl")
        if jury and jury.is_file() and jury not in evidence.files.values():
            evidence.files[f"jury/{option}.jsonl"] = jury
    _add_runs(evidence, args, settings)
    written = (folder / name).stat().st_mtime
    inputs = [(path, file) for path, file in evidence.files.items() if isinstance(file, Path)]
    if newer := [path for path, file in inputs if file.stat().st_mtime > written and not path.startswith("report/")]:
        evidence.gaps.append(f"Written after the report, which may be of other contents: {', '.join(newer)}.")
    _add_prompts(evidence, rubric or "", args.rubric)
    _add_card(evidence)
    return evidence


def _add_runs(evidence: Evidence, args: ReportArguments, settings: str | None) -> None:
    """Add verdicts and audits, each with the records beside it, and keep the record of the judge's run."""
    for number, place in enumerate(args.verdicts, 1):
        file = verdicts_file(named_file(place)[1])
        evidence.add("verdicts", file, f"verdicts/{number}")
        for record in sorted(file.parent.glob("run-*.json")):
            path = f"verdicts/{number}/{record.name}"
            evidence.files[path] = record
            if record.name == f"run-{settings}.json":
                try:
                    content = json.loads(read_text(record))
                    evidence.judged_by = content["arguments"].get("judge") or ""
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    evidence.gaps.append(f"{path}: no record of a run can be read there.")
                else:
                    evidence.documents[path], evidence.run = content, path
    if args.teacher_verdicts not in evidence.documents[evidence.report]["judges"]:  # else it names one of --verdicts
        evidence.add("teacher_verdicts", args.teacher_verdicts and verdicts_file(args.teacher_verdicts), "teacher")
    for number, place in enumerate(args.audits, 1):
        audit = Path(place, "audit.json") if Path(place).is_dir() else Path(place)
        evidence.add("audits", audit, f"audits/{number}")
        for each in (each for pattern in AUDIT_FILES for each in sorted(audit.parent.glob(pattern)) if each.is_file()):
            evidence.files[f"audits/{number}/{each.relative_to(audit.parent).as_posix()}"] = each


def _add_prompts(evidence: Evidence, rubric: str, file: str | None) -> None:
    """Add the judge's rubric and, unless the judge is known to read no prompts, their template and fingerprint."""
    if not rubric or without_scale(rubric):
        return
    try:
        name = file if file and read_rubric(file).name == rubric else rubric.partition("@")[0]
        installed, (definition, template) = read_rubric(name), rubric_files(name)
        if installed.name != rubric:
            raise RecordError("this version has another version of it")
        fingerprint = prompt_fingerprint(installed)
    except AutoMedEvalError as error:
        evidence.gaps.append(f"The rubric {rubric} and its prompts are not in the pack: {error}.")
        return
    evidence.files["prompts/rubric.yaml"] = definition
    if parse_model(evidence.judged_by)[0] in ("checkpoint", "openai"):  # not known: as a checkpoint
        evidence.files[f"prompts/{installed.template}"] = template
        evidence.prompts = {"rubric": rubric, "fingerprint": fingerprint}


def _add_card(evidence: Evidence) -> None:
    """Add the cards of the judge: of the packaged one, or the README.md in the folder that the run named."""
    place = parse_model(evidence.judged_by)[1]
    if evidence.judged_by == "small":
        for name, folder in CARDS.items():
            card = resources.files("automedeval").joinpath(folder, "README.md")
            evidence.files[f"card/{name}.md"] = card.read_bytes()
    elif place and Path(place, "README.md").is_file():
        evidence.files["card/judge.md"] = Path(place, "README.md").read_bytes()
    else:
        evidence.gaps.append(f"No card of the judge {evidence.judge} is on this machine.")


def who_did_what(files: Mapping[str, Path | bytes]) -> Iterator[dict[str, Any]]:
    """Yield an entry of the ledger for each person and file, with the names that the records hold.

    A jury that revises a verdict overrules the judge that gave it. RecordError if a line is no record.
    """
    for path, file in files.items():
        kind = path.partition("/")[0]
        if isinstance(file, Path) and kind in PEOPLE:
            records = Counter((line.get("annotator"), line.get("role")) for _, line in read_lines(file))
            for (annotator, role), count in records.items():
                yield {"kind": kind, "annotator": annotator, "role": role, "records": count, "of": path}
        elif isinstance(file, Path) and kind == "jury":
            decided = defaultdict(list)
            for _, line in read_lines(file):
                decided[line.get("annotator"), line.get("judge"), line.get("decision")].append(line.get("case_id"))
            for (annotator, judge, decision), cases in decided.items():
                overruled = {"overruled": judge} if decision == "revise" else {"judge": judge, "decision": decision}
                yield {"kind": kind, "annotator": annotator, **overruled, "cases": cases, "of": path}


def limits_in(card: str) -> list[str]:
    """Return what a card says of a model and its limits: its paragraphs before the first section, and in those on limits."""
    plain = re.sub(r"\A---\n.*?\n---\n|<!--.*?-->|[*`]", "", card, flags=re.S)
    said = []
    for number, section in enumerate(re.split(r"^##? ", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain), flags=re.M)):
        heading, _, body = section.partition("\n")
        paragraphs = [" ".join(each.removeprefix("- ").split()) for each in re.split(r"\n\s*\n|\n(?=- )", body.strip())]
        if number == 1 or LIMITS.search(heading):
            said += [f"{heading}: {each}" for each in paragraphs if each and each[0] != "|" and each[-1] != ":"]
    return said
