"""Put the result into words: first the answer, which model scores highest and what is known of the judge, then the rest."""

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from automedeval.meta_evaluation.agreement.candidates import SIGNIFICANT, standing
from automedeval.meta_evaluation.agreement.judge_facts import profile
from automedeval.meta_evaluation.criteria.report import credit as credit_of_criteria
from automedeval.meta_evaluation.facts import (
    LEAST_RATED,
    JudgeProfile,
    facts_of,
    harmful,
    is_trusted,
    trust,
)
from automedeval.meta_evaluation.page import Bars, PageTable, Said, Scale, say, say_by_name
from automedeval.meta_evaluation.report.changes import drop_on
from automedeval.records import JsonObject
from automedeval.records.text import in_a_row, span

NEWLY_SAID = {  # what is new in answers of a model beside a baseline → words
    "differs": "a number newly differs",
    "empty": "the text is newly empty",
    "failing": "the judge newly gives no score",
}


class MainJudge(NamedTuple):
    """The judge whose leaderboard is shown first."""

    name: str
    record: JsonObject
    table: JsonObject  # of the models
    stands: JsonObject  # see `standing`
    known: JudgeProfile


def main_judge(result: JsonObject) -> MainJudge:
    """Return the main judge of a result, and what is known of it."""
    name = result["main_judge"]["name"]
    record = result["judges"][name]
    table = result["models"][name]
    stands = standing(table)
    known = profile(
        name,
        record,
        steps=result["next_steps"],
        unclear=stands["unclear"],
        harm=result.get("harm", {}),
        **credit_of(result, name),
    )
    return MainJudge(name, record, table, stands, known)


def compared(result: JsonObject) -> JsonObject:
    """Return model → its figures beside the baseline; empty without a baseline."""
    return result["baseline"]["models"] if "baseline" in result else {}


def real_judges(result: JsonObject) -> dict[str, dict]:
    """Return the records of judges that are no baselines."""
    return {name: record for name, record in result["judges"].items() if record["kind"] == "judge"}


def said_of(result: JsonObject, scale: Scale, harm: Sequence[str], commands: Sequence[str]) -> Said:
    """Return what a page says: what to read first, the headline, the regressions by their cases, the facts, and the rest.

    Args:
        scale: that of the main judge's scores.
        harm: the sentences on harm but the first, which the facts have.
        commands: with which people rate cases.
    """
    main = main_judge(result)
    return Said(
        words=headline(result, main, scale),
        notes=result["notes"],
        alert=alert(result, main, scale),
        facts=answer(result, main),
        further=[*further(result, main), *harm],
        commands=commands,
    )


def first_lines(said: Said) -> list[str]:
    """Return what the terminal shows: what to read first, the headline, the regressions by their cases, and the next step."""
    lines = [*filter(None, [said.alert]), *said.words]
    if "Next step" in said.facts:
        lines.append(f"Next step: {said.facts['Next step']}")
    return lines


def alert(result: JsonObject, main: MainJudge, scale: Scale) -> str:
    """Say which answers a person must read before anything else; "" where nothing points at one."""
    return " ".join(
        say(
            "alert",
            known=main.known,
            harmful=harmful(main.known.harm),
            dropped={name: figures["dropped"] for name, figures in compared(result).items()},
            drop=drop_on(scale),
            worst=result["worst_rated"],
        )
    )


def headline(result: JsonObject, main: MainJudge, scale: Scale) -> list[str]:
    """Say which model is better, by how much, and how far to trust it; then in which cases one is worse than the baseline."""
    people = result["models"].get("people", {"gap": "no ratings"})
    shared = result["main_judge"]["shared"]
    beside = compared(result).items()
    return say(
        "headline",
        result=result,
        known=main.known,
        scale=scale,
        significant=SIGNIFICANT,
        newly=NEWLY_SAID,
        best=best_model(main.table, may_say_better(result, main)),
        order=main.stands["order"],
        shared=shared,
        where=_where(result),
        means={name: figure["value"] for name, figure, _ in bars(result, scale).rows},
        worst=sorted(beside, key=lambda model: model[1]["better"] - model[1]["worse"]),
        worse_cases=[result["baseline"]["questions"][case] for case in _worse(result)],
        people="" if "gap" in people else best_model(people, trusted=True),
        trust=trust(main.known),
        languages=facts_of(main.known).get("Other languages", ""),
    )


def may_say_better(result: JsonObject, main: MainJudge) -> bool:
    """Return whether the judge is trusted, and people do not clearly put another model above its first one."""
    ranks = standing(result["models"].get("people", {}))["ranks"]
    first = [*main.stands["order"], ""][0]
    return is_trusted(main.known) and ranks.get(first, "1").partition("–")[0] == "1"


def best_model(table: JsonObject, trusted: bool) -> str:
    """Say which model is first; it is called better only by a `trusted` judge, or by people."""
    (text,) = say("best", gap=table.get("gap"), trusted=trusted, **standing(table))
    return text


def answer(result: JsonObject, main: MainJudge) -> dict[str, str]:
    """Return what is known beside the headline: what it is about → text, in the order in which it is said."""
    trusted = may_say_better(result, main)
    what = "Best model" if trusted else "Wins most pairs"
    first = best_model(main.table, trusted)
    has_scores = any("score" in figures for figures in _models_by(result, main.name).values())
    if compared(result) and has_scores:
        first += " This and the ranks count pairs won; the headline compares mean scores."
    facts = {what: first} | facts_of(main.known)
    judges = len({judge["name"] for judge in real_judges(result).values()})
    others = f" (of {judges} judges; --main_judge names another)" if judges > 1 else ""
    facts["Judge"] = f"{main.name}, with the rubric {main.record['rubric']}{others}."
    if main.record["spent"]:
        facts["Requests"] = f"{main.record['spent']}."
    return facts


def read_first(result: JsonObject) -> dict[str, str]:
    """Return a mark of the grid in an address → words, of the cases to read first."""
    main = result["main_judge"]
    return say_by_name(
        "read_first",
        differing=main["differing_cases"],
        worse=len(_worse(result)),
        others=list(compared(result)),
        worst=result["worst_rated"],
        valid=result["judges"][main["name"]]["valid_rate"]["value"],
    )


def _worse(result: JsonObject) -> list[str]:
    """Return the cases in which a model is worse than the baseline, the worst of each first."""
    by_rank = zip_longest(*(figures["cases"] for figures in compared(result).values()))
    cases = dict.fromkeys(chain.from_iterable(by_rank))
    return [case for case in cases if case is not None]


def bars(result: JsonObject, scale: Scale) -> Bars:
    """Return a bar per model, best first: its mean score or share of pairs won; of its answers those marked, and those empty.

    Args:
        scale: that of the main judge's scores; None: the shares of pairs won are shown.
    """
    main = result["main_judge"]["name"]
    shared = result["main_judge"]["shared"]
    record = result["judges"][main]
    on_harm = harmful(result.get("harm", {}))
    rows = []
    for name, figures in _models_by(result, main).items():
        shown = shared["means"].get(name) if scale else figures["win_rate"]
        remarks = say(
            "remarks",
            rated=shared.get("people", {}).get(name),
            cases=shown["n"],
            harmful=on_harm.get(name, [0])[0],
            differing=record["differs"].get(name, [0])[0],
            empty=record["empty"].get(name),
        )
        rows.append((name, shown, ", ".join(remarks)))
    what = "Share of pairs won"
    if scale:
        what = f"Mean score{_where(result)}, {scale[0]:g} (worst) to {scale[1]:g} (best)"
    if people := result.get("people"):
        what += ". People's scores are from {:g} to {:g}".format(*people["range"])
        if people["raters"] == "partly crossed":
            what += "; the raters of two models may differ"
    rows.sort(key=lambda row: -(row[1]["value"] or 0))
    return Bars(f"{what}. Lines: 95 % intervals", rows, scale)


def _models_by(result: JsonObject, judge: str) -> JsonObject:
    """Return model → its figures by a judge, or by people; empty where there are none."""
    return result["models"].get(judge, {}).get("models", {})


def _where(result: JsonObject) -> str:
    """Name the cases of means where not all have a score of every model, and models without any."""
    main = result["main_judge"]
    shared = main["shared"]
    unscored = [model for model in main["valid_rates"] if model not in shared["means"]]
    if shared["cases"] == shared["of"] and not unscored:
        return ""
    if not shared["cases"]:
        return " in each model's own cases"
    if more := len(unscored[3:]):
        unscored[3:] = [f"{more} more"]
    but = f" but {in_a_row(unscored)} (no score)" if unscored else ""
    return f" in the {shared['cases']} of {shared['of']} cases with a score of every model{but}"


def credit_of(result: JsonObject, line: str) -> JsonObject:
    """Return what people's ratings, labels or else choices say of a judge, as arguments of `JudgeProfile`."""
    record = result["judges"][line]
    rated = "people" in result
    few = rated and record["rated_cases"] < LEAST_RATED
    choices = result.get("choices", {}).get(record["name"], {})
    sentences = say(
        "credit", judge=line, record=record, choices=choices, rated=rated, few=few,
        least=LEAST_RATED, cases=result["cases"],
    )  # fmt: skip
    credit: JsonObject = {"agreement": [*sentences, *credit_of_criteria(result, line)]}
    if rated and not few and record["best_baseline"]:
        credit["outcome"] = record["best_baseline"]["outcome"]
    return credit


def further(result: JsonObject, main: MainJudge) -> list[str]:
    """Return sentences on what the answer leaves out: one rater beside the others, other judges, people's choices."""
    others = [name for name in real_judges(result) if name != main.name]
    figures = result["few_ratings"]["judges"][main.name] if "few_ratings" in result else {}
    estimates = chain.from_iterable(by_model.values() for by_model in figures.values())
    return say(
        "further",
        result=result,
        main=main.name,
        of_criteria=chain.from_iterable(credit_of_criteria(result, name) for name in others),
        ceiling=result.get("people", {}).get("ceiling"),
        rivals=[name for name in others if "outcome" in credit_of(result, name)],
        figures=figures,
        significant=SIGNIFICANT,
        worth=sorted(
            {round(each["worth"] / each["rated"], 1) for each in estimates if each["worth"]}
        ),
    )


def leaderboard(result: JsonObject) -> PageTable:
    """Return the models by the main judge, the first one first."""
    main = result["main_judge"]
    models = _models_by(result, main["name"])
    people = _models_by(result, "people")
    stands = standing(result["models"][main["name"]])
    head = ["model", "rank", "share of pairs won, %", "verdicts with a score or choice, %"]
    head += ["won by people, %"] if people else []
    rows = []
    for model in stands["order"]:
        figures = [models[model]["win_rate"], main["valid_rates"].get(model)]
        if people:
            figures.append(people.get(model, {}).get("win_rate"))
        rows.append([model, stands["ranks"][model], *(span(each, 0, 100) for each in figures)])
    caption = f"Models by {main['name']}; ranks that overlap are no clear difference"
    return PageTable(head, rows, caption if rows else "")
