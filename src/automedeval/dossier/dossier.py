"""Make a dossier: facts of a run, the items of reporting lists that they answer, and the pack of files with its ledger."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import automedeval
from automedeval.dossier.evidence import RESULTS, Evidence, gather, limits_in, who_did_what
from automedeval.dossier.facts import Fact, Root, facts_of, read_packaged
from automedeval.dossier.ledger import HEAD, LEDGER, PAGES, chained, head_of, sha256_of
from automedeval.reports.page import Table, render_report
from automedeval.reports.text import cell, in_a_row

LISTS = ("tripod_llm.yaml", "chart.yaml")
TO_WRITE = "for the authors to write"
STATES = ("answered from the run", "answered in part", TO_WRITE)
Section = tuple[str, str, Table | Sequence[str]]  # its heading, words below it, and a table or sentences


def make_dossier(report: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Path | bytes], list[str]]:
    """Return the dossier of the report in a folder: path in the pack → the file or its content, and lines for the terminal.

    Args:
        settings: how the dossier is made: "command", "version" and "commit".

    Raises:
        RecordError: the folder holds no report, or a record of people cannot be read.
    """
    evidence = gather(report)
    hashes = {path: sha256_of(file) for path, file in sorted(evidence.files.items())}
    entries = [{"kind": path.partition("/")[0], "file": path, "sha256": digest} for path, digest in hashes.items()]
    people = list(who_did_what(evidence.files))
    entries += [*([{"kind": "prompts", **evidence.prompts}] if evidence.prompts else []), *people]
    ledger, last = chained(entries)
    facts, gaps = facts_of(_roots(evidence, people))
    version = evidence.result["settings"].get("version")
    if version != automedeval.__version__:
        evidence.gaps.insert(0, f"The report is by automedeval {version}, this dossier by {automedeval.__version__}.")
    gaps = evidence.gaps + gaps
    words, sections = [], list(_fact_sections(facts))
    for path, file in evidence.files.items():
        if path.startswith("card/"):
            card = file if isinstance(file, bytes) else file.read_bytes()
            sections.append((f"What {path} says of limits", "", limits_in(card.decode(errors="replace"))))
    for reporting in map(read_packaged, LISTS):
        rows, states = answers(reporting["items"], facts)
        name = f"{reporting['name']} {reporting['version']}"
        counts = in_a_row([f"{states[state]} {'is' if states[state] == 1 else 'are'} {state}" for state in STATES])
        words.append(f"{name}: of {len(rows)} items {counts}.")
        source = f"{reporting['source']}. {reporting['url']}. The items are in this package's words."
        sections.append((name, source, (("item", "asks", "answer", "from"), rows)))
    left_out = [f"{each['name']} ({each['why']})" for each in read_packaged("left_out.yaml")]
    words += [
        f"Lists that are left out: {in_a_row(left_out)}.",
        f"It is about the judge {evidence.judge}. Judges and baselines in the report: {len(evidence.result['judges'])}.",
        f"{len(hashes)} files, and {len(entries)} lines in the ledger. The hash of the last one: {last}",
    ]
    sections.append(("Files", "", (("file", "sha256"), list(hashes.items()))))
    title = f"Dossier: {Path(str(evidence.files.get(_cases(evidence) or '', report))).stem}"
    pages = _pages(title, words, gaps, sections, settings)
    head = head_of(len(entries), last, {name: sha256_of(pages[name]) for name in PAGES})
    return evidence.files | {LEDGER: ledger} | pages | {HEAD: head}, [*words, *(f"note: {gap}" for gap in gaps)]


def answers(
    items: Sequence[Mapping[str, Any]], facts: Mapping[str, Fact]
) -> tuple[list[tuple[str, ...]], Counter[str]]:
    """Return a row for each item of a list (item, what it asks, answer, files), and how many are in each of `STATES`."""
    states: Counter[str] = Counter()
    rows: list[tuple[str, ...]] = []
    for item in items:
        there = [facts[name] for name in item["facts"] if name in facts]
        missing = [name.replace("_", " ") for name in item["facts"] if name not in facts]
        answer = [f"{fact.text}." for fact in there]
        if "rest" in item or not there:
            answer.append(f"{TO_WRITE.capitalize()}{': ' * ('rest' in item)}{item.get('rest', '')}.")
        if missing:
            answer.append(f"Not in this run: {', '.join(missing)}.")
        states[STATES[2 if not there else 1 if missing or "rest" in item else 0]] += 1
        files = dict.fromkeys(file for fact in there for file in fact.places)
        rows.append((item["item"], item["asks"], " ".join(answer), ", ".join(files)))
    return rows, states


def _roots(evidence: Evidence, people: Sequence[Mapping[str, Any]]) -> dict[str, Root]:
    """Return what the figures of facts.yaml are read from."""
    result, file, judge = evidence.result, evidence.result_file, evidence.judge
    raters, jury = [], []
    for each in people:
        if "records" in each:
            role = f" ({each['role']})" if each["role"] else ""
            raters.append(f"{each['annotator']}{role}: {each['records']} {each['kind'].replace('_', ' ')}")
        elif "overruled" in each:
            jury.append(f"{each['annotator']} overruled {each['overruled']} in {len(each['cases'])} cases")
    made = {"cases": _cases(evidence), "files": len(evidence.files), "raters": raters or None, "jury": jury or None}
    certificates = (result.get("certificate") or {}).get("judges") or {}
    roots = {
        "harm": Root(result.get("harm"), file, ("harm",)),
        RESULTS[Path(file).name]: Root(result, file),
        "settings": Root(result["settings"], file, ("settings",)),
        "notes": Root(result.get("notes"), file, ("notes",)),
        "judge": Root(result["judges"].get(judge), file, ("judges", judge)),
        "standing": Root((result.get("models") or {}).get(judge), file, ("models", judge)),
        "certificate": Root((certificates.get(judge) or {}).get("all"), file, ("certificate", "judges", judge, "all")),
        "made": Root(made | evidence.prompts, LEDGER),
    }
    if evidence.run:
        roots["run"] = Root(evidence.run, evidence.run_file)
    if evidence.run and evidence.prompts:
        roots["prompt"] = Root(evidence.run.get("arguments"), evidence.run_file, ("arguments",))
    return roots


def _cases(evidence: Evidence) -> str | None:
    return next((path for path in evidence.files if path.startswith("cases/")), None)


def _fact_sections(facts: Mapping[str, Fact]) -> list[Section]:
    by_section: dict[str, list[tuple[str, str, str]]] = {}
    for name, fact in facts.items():
        places = ", ".join(f"{file} {', '.join(pointers)}".strip() for file, pointers in fact.places.items())
        by_section.setdefault(fact.section, []).append((name.replace("_", " "), fact.text, places))
    return [(section, "", (("fact", "in the run", "from"), rows)) for section, rows in by_section.items()]


def _pages(
    title: str, words: Sequence[str], gaps: Sequence[str], sections: Sequence[Section], settings: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the HTML page and the Markdown, with the same content."""
    rendered = render_report(
        "automedeval.dossier", "dossier", title, words=words, notes=gaps, figures=(), settings=settings, main_table=((), ()),
        sections=[(re.sub(r"\W+", "-", heading.lower()), heading, *more) for heading, *more in sections],
    )  # fmt: skip
    lines = [f"# {cell(title)}", "", "Not for clinical use: for research on medical language models.", ""]
    lines += [f"- {cell(each)}" for each in words]
    for heading, below, content in [("Gaps and assumptions", "", gaps), *sections]:
        lines += ["", f"## {cell(heading)}", "", *([cell(below), ""] if below else [])]
        if isinstance(content, tuple):
            above, *rows = (f"| {' | '.join(map(cell, row))} |" for row in (content[0], *content[1]))
            lines += [above, "|---" * len(content[0]) + "|", *rows]
        else:
            lines += [f"- {cell(each)}" for each in content or ["none"]]
    lines += ["", cell(f"{settings['command']}, automedeval {settings['version']}")]
    texts = {"dossier.html": rendered["dossier.html"], "dossier.md": "\n".join(lines) + "\n"}
    return {
        name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()
    }  # a name may hold a surrogate
