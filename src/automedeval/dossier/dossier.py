"""Make a dossier: facts of a run, the items of reporting lists that they answer, and the pack of files with its ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import automedeval
from automedeval.dossier.evidence import RESULTS, Evidence, gather, limits_in, who_did_what
from automedeval.dossier.facts import Fact, facts_of, read_packaged
from automedeval.dossier.ledger import HEAD, LEDGER, PAGES, chained, head_of, sha256_of
from automedeval.reports.page import Table, environment, render_report
from automedeval.reports.text import in_a_row

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
    files, result = evidence.files, evidence.documents[evidence.report]
    hashes = {path: sha256_of(file) for path, file in sorted(files.items())}
    people = list(who_did_what(files))
    entries = [{"kind": path.partition("/")[0], "file": path, "sha256": digest} for path, digest in hashes.items()]
    entries += [{"kind": "prompts", **evidence.prompts}] * bool(evidence.prompts) + people
    ledger, last = chained(entries)
    cases = next((path for path in files if path.startswith("cases/")), None)
    made = {"cases": cases, "files": len(files), **_people_in_words(people), **evidence.prompts}
    facts, gaps = facts_of(evidence.documents | {LEDGER: made}, _roots(evidence))
    gaps = evidence.gaps + gaps
    if (version := result["settings"].get("version")) != automedeval.__version__:
        gaps.insert(0, f"The report is by automedeval {version}, this dossier by {automedeval.__version__}.")
    words, sections = [], _fact_sections(facts)
    for path, card in files.items():
        if path.startswith("card/") and isinstance(card, bytes):
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
        f"It is about the judge {evidence.judge}. Judges and baselines in the report: {len(result['judges'])}.",
        f"{len(hashes)} files, and {len(entries)} lines in the ledger. The hash of the last one: {last}",
    ]
    sections.append(("Files", "", (("file", "sha256"), list(hashes.items()))))
    sealed = {LEDGER: ledger} | _pages(f"Dossier: {Path(cases or report).stem}", words, gaps, sections, settings)
    head = head_of({name: sha256_of(content) for name, content in sealed.items()})
    return files | sealed | {HEAD: head}, [*words, *(f"note: {gap}" for gap in gaps)]


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


def _people_in_words(people: Sequence[Mapping[str, Any]]) -> dict[str, list[str] | None]:
    raters, jury = [], []
    for each in people:
        if "records" in each:
            role = f" ({each['role']})" if each["role"] else ""
            raters.append(f"{each['annotator']}{role}: {each['records']} {each['kind'].replace('_', ' ')}")
        elif "overruled" in each:
            jury.append(f"{each['annotator']} overruled {each['overruled']} in {len(each['cases'])} cases")
    return {"raters": raters or None, "jury": jury or None}


def _roots(evidence: Evidence) -> dict[str, Sequence[str]]:
    """Return what the first words of the figures in facts.yaml stand for: a file, and keys in it."""
    file, judge = evidence.report, evidence.judge
    roots: dict[str, Sequence[str]] = {key: (file, key) for key in ("harm", "settings", "notes")}
    roots |= {RESULTS[Path(file).name]: (file,), "run": (evidence.run,), "made": (LEDGER,)}
    roots |= {"judge": (file, "judges", judge), "standing": (file, "models", judge)}
    roots["certificate"] = (file, "certificate", "judges", judge, "all")
    return roots | ({"prompt": (evidence.run, "arguments")} if evidence.prompts else {})


def _fact_sections(facts: Mapping[str, Fact]) -> list[Section]:
    sections: list[Section] = []
    for section, named in groupby(facts.items(), lambda entry: entry[1].section):
        rows = []
        for name, fact in named:
            places = ", ".join(f"{file} {', '.join(pointers)}".strip() for file, pointers in fact.places.items())
            rows.append((name.replace("_", " "), fact.text, places))
        sections.append((section, "", (("fact", "in the run", "from"), rows)))
    return sections


def _pages(
    title: str, words: Sequence[str], gaps: Sequence[str], sections: Sequence[Section], settings: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the HTML page and the Markdown, with the same content."""
    room, context = "automedeval.dossier", {"words": words, "notes": gaps, "sections": sections, "settings": settings}
    pages = render_report(room, "dossier", title, figures=(), main_table=((), ()), **context)  # type: ignore[arg-type]
    pages["dossier.md"] = environment(room).get_template("dossier.md.jinja").render(title=title, **context) + "\n"
    return {name: pages[name].encode("utf-8", "backslashreplace") for name in PAGES}  # a name may hold a surrogate
