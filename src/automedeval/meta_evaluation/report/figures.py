"""The figures of a result as tables: what the page folds under its first screen."""

from collections.abc import Iterator, Mapping
from typing import Any

from automedeval.meta_evaluation.agreement.judge_facts import MEASURES
from automedeval.meta_evaluation.agreement.paper_table import (
    gaps_in_words,
    means_in_words,
    tests_in_words,
)
from automedeval.meta_evaluation.page import PageTable
from automedeval.records import JsonObject
from automedeval.records.text import p_value
from automedeval.records.types import each_once

OF_A_JUDGE = ("rubric", "verdicts", "valid_rate", "prefers_longer", "prefers_first", *MEASURES)
MEASURED = (
    "Judges, and how far they agree with people: by their whole scores or choices, of one that gives neither by its expected "
    "scores. Concordance: over pairs that people did not tie, 1 if ordered alike, ½ for a judge's tie, by expected scores, or "
    "means of several criteria, if there are any; chance is 0.5. Wrong without a valid verdict. Pearson's "
    "correlation of one rater is of scores at the mean of all raters of the same answers"
)
TOPICS = "Topics with most cases: mean scores in the cases with a score of each of them, by"
COMPARED = "Differences in concordance, paired over cases; p is adjusted for their number (Holm)"
FEW = (
    "Models by a judge and the ratings of some cases, if these are a random draw of all; means also if all models have the "
    "same raters. Weight: the mean of the judge's weights, each fitted without its case. Worth: how many rated cases "
    "would say as much without the judge. Differences are from"
)
TABLE_2 = (
    "Every judge: means over its runs, in the form of the paper's Table 2. All figures are from the judges' own scores or "
    "choices; accuracies and BERTScore in per cent. A cell is the mean over the judge's runs, each scored by itself, ± the "
    "standard deviation (n − 1) between them, with the 95 % interval of the mean over cases. Invalid or missing is wrong in "
    "accuracies, and left out of correlations. BERTScore and BARTScore measure how similar a rationale is to the teacher's (of "
    "several to the most similar one), not how good it is. * is p < 0.001, † p < 0.01, § p < 0.05: of the main judge's "
    "correlations beside 0, not adjusted; of the others beside the main judge, adjusted within the column (Holm)"
)
BESIDE_PHYSICIANS = (
    "Judges beside the majority of the physicians. What a judge did not read is wrong in accuracies, and left out of kappa, "
    "macro F1, AUROC and the calibration error"
)
DIFFERENCES = (
    "where both have a value in every run, with the interval over cases and the adjusted p-value of a two-sided paired t-test "
    "(of a correlation with the standard error of resampled cases; the runs are held fixed)"
)


def table_of(caption: str, tree: Any, *names: str) -> PageTable:
    """Return records as a table: a row for each, with its names, and a column for every figure that one of them has.

    Args:
        tree: name → record, or where there are several `names` name → name → record, and so on; or a list of records.
    """
    leaves = [(path, _cells(record)) for path, record in _leaves(tree, len(names))]
    columns = each_once(cells for _, cells in leaves)
    rows = [[*path, *map(cells.get, columns)] for path, cells in leaves]
    return PageTable([*names, *columns], rows, caption if rows else "")


def _leaves(tree: Any, depth: int) -> Iterator[tuple[tuple[str, ...], JsonObject]]:
    """Yield (names, record) of every record in a tree of so many levels, or in a list."""
    if isinstance(tree, list):
        tree = dict(enumerate(tree))
    for name, part in tree.items():
        if depth < 2:
            yield (name,)[:depth], part
            continue
        for path, record in _leaves(part, depth - 1):
            yield (name, *path), record


def _cells(record: JsonObject) -> JsonObject:
    """Return the figures of a record, those of its parts among them, by the parts' own names; lists have no place in a cell."""
    cells: JsonObject = {}
    for name, value in record.items():
        if name in ("p", "p_adjusted"):
            value = p_value(value)
        if isinstance(value, Mapping) and "value" not in value:
            cells |= value
        elif not isinstance(value, list):
            cells[name.replace("_", " ")] = value
    return cells


def figures_of(result: JsonObject) -> list[PageTable]:
    """Return every figure of a result but those that are drawn."""
    people = result.get("people", {})
    main = result["main_judge"]["name"]
    tables_of = result["models"].items()
    models = {judge: table.get("models") or {"none": table} for judge, table in tables_of}
    errors = {}
    for judge, record in result["judges"].items():
        errors[judge] = {error: {"verdicts": count} for error, count in record["errors"].items()}
    tables = [
        table_of(f"{TOPICS} {main}", result["topics"]),
        table_of(MEASURED, _judges(result), "judge"),
        table_of("Invalid verdicts by their errors", errors, "judge", "error"),
        table_of(COMPARED, result.get("comparisons", [])),
        table_of("Agreement among the raters", people.get("reliability") or {}, "criterion"),
        table_of("Candidates by every judge", models, "judge", "model"),
        table_of("Choices beside people's", result.get("choices", {}), "judge", "criterion"),
        table_of("Errors that people found", result.get("verdict_errors", {}), "judge", "kind"),
    ]
    if "few_ratings" in result:
        few = result["few_ratings"]
        caption = f"{FEW} {few['baseline']}"
        tables.append(table_of(caption, few["judges"], "judge", "model", "figure"))
    if "criteria" in result:
        tables += _criteria(result["criteria"])
    if "similarity" in result:
        similar = result["similarity"]
        models_of = ", ".join(f"{name} {model}" for name, model in similar["settings"].items())
        caption = f"{similar['label'].capitalize()}: {similar['teacher']}. By {models_of}"
        tables.append(table_of(caption, similar["judges"], "judge"))
    if "table2" in result:
        tables += _table2(result["table2"])
    return tables


def _judges(result: JsonObject) -> JsonObject:
    """Return what is measured of every judge, of people, and of one rater."""
    main = result["main_judge"]["name"]
    people = result.get("people")
    records = {_marked(name, main): record for name, record in result["judges"].items()}
    if people:
        records["people"] = people
        if "ceiling" in people:
            records["one rater against the others"] = people["ceiling"]
    judges = {}
    for name, record in records.items():
        judges[name] = {measure: record[measure] for measure in OF_A_JUDGE if measure in record}
    return judges


def _marked(judge: str, main: str) -> str:
    return f"{judge} (main judge)" if judge == main else judge


def _criteria(criteria: JsonObject) -> list[PageTable]:
    """Return what judges of criteria say, and how far physicians' labels certify them."""
    candidates = {}
    missed = {}
    for judge, record in criteria["judges"].items():
        name = judge if record["certified"] else f"{judge}, uncertified"
        candidates[name] = record["candidates"]
        missed[name] = record["missed"]
    tables = [
        table_of("Criteria by every judge", candidates, "judge", "model"),
        table_of("Criteria that are failed most, by tag and model", missed, "judge", "tag"),
    ]
    if certificate := criteria["certificate"]:
        judges = certificate["judges"]
        physicians = certificate["physicians"]
        tables += [
            table_of("Labels of criteria by physicians", [certificate["labels"]]),
            table_of(BESIDE_PHYSICIANS, judges, "judge"),
            table_of("Each physician beside the majority of the others", physicians, "physician"),
        ]
    return tables


def table2_of(table: JsonObject) -> PageTable:
    """Return a result in the form of the paper's Table 2: means over the judges' runs."""
    ours = table["ours"]
    judges = {_marked(row["judge"], ours): means_in_words(row) for row in table["rows"]}
    return table_of(TABLE_2, judges, "evaluation model")


def _table2(table: JsonObject) -> list[PageTable]:
    others = {row["judge"]: tests_in_words(row) for row in table["rows"]}
    del others[table["ours"]]
    gaps = {why: {"figures": "; ".join(which)} for why, which in gaps_in_words(table).items()}
    return [
        table2_of(table),
        table_of(f"Each judge less {table['ours']} {DIFFERENCES}", others, "evaluation model"),
        table_of("Figures that are N/A", gaps, "because"),
    ]
