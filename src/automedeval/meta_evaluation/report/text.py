"""Put the result into words: first the answer, which model scores highest and what is known of the judge, then the rest."""

from itertools import chain, zip_longest

from automedeval.meta_evaluation.agreement.candidates import LEVEL, standing
from automedeval.meta_evaluation.agreement.judge_facts import profile
from automedeval.meta_evaluation.criteria.report import credit as credit_of_criteria
from automedeval.meta_evaluation.facts import (
    SHOWN,
    JudgeProfile,
    against_best,
    best_of,
    by_count,
    credit,
    differs_in_words,
    facts_of,
    is_trusted,
    trust,
)
from automedeval.meta_evaluation.page import Bars, PageTable, Scale, is_clear, say
from automedeval.meta_evaluation.report.changes import drop_on
from automedeval.records import JsonObject
from automedeval.records.text import interval, number, percent, several, span

READ_FIRST = 3  # cases that a line names
FIGURES = {  # of a model by few ratings → words
    "mean": "mean score",
    "difference": "less {}",
    "win_rate": "share of cases won from {}",
}
KINDS = {
    "classical": "ratings alone",
    "naive": "judge alone",
    "prediction_powered": "ratings and judge",
}


def real_judges(result: JsonObject) -> dict[str, dict]:
    """Return the records of judges that are no baselines."""
    return {name: record for name, record in result["judges"].items() if record["kind"] == "judge"}


def headline(result: JsonObject, scale: Scale) -> str:
    """Say which model is better, by how much, and how far to trust it; with a baseline, how the others stand beside it.

    A model is called better only if what is known of the judge allows it (`facts.is_trusted`).
    """
    table, stands, known = known_of(result)
    if known.valid == 0:
        return f"{known.judge} has no valid verdict, so that no model can be compared."
    if result["cases"]["models"] == 1:
        sentences = ["There is one model, and nothing to compare it with."]
    elif "baseline" not in result:
        sentences = [_best(table, stands, is_trusted(known)), _means(result, stands, scale)]
    else:
        models = result["baseline"]["models"].items()
        worst = sorted(models, key=lambda model: model[1]["better"] - model[1]["worse"])
        sentences = [_beside(name, figures, result, scale) for name, figures in worst[:SHOWN]]
        if len(worst) > SHOWN:
            sentences.append(f"{several(len(worst) - SHOWN, 'other model')} below.")
        sentences = sentences or ["No other model was judged."]
    sentences += [_by_people(result), trust(known)]
    return " ".join(filter(None, sentences))


def answer(result: JsonObject) -> dict[str, str]:
    """Return what is known beside the headline: what it is about → text, in the order in which it is said."""
    table, stands, known = known_of(result)
    trusted = is_trusted(known)
    answers = {
        "Best model" if trusted else "Wins most pairs": _best(table, stands, trusted)
    } | facts_of(known)
    judges, main = real_judges(result), result["main_judge"]["name"]
    others = f" (of {len(judges)} judges; --main_judge names another)" if len(judges) > 1 else ""
    answers["Judge"] = f"{main}, with the rubric {judges[main]['rubric']}{others}."
    if judges[main]["spent"]:
        answers["Requests"] = f"{judges[main]['spent']}."
    return answers


def alert(result: JsonObject, scale: Scale) -> str:
    """Say which answers a person must read before anything else, of scores on a scale; "" where nothing points at one."""
    _, _, known = known_of(result)
    models, lowest = result.get("baseline", {"models": {}})["models"], result["lowest_rated"]
    dropped = {name: compared["dropped"] for name, compared in models.items()}
    clauses = differs_in_words(known.differs)
    clauses += by_count(dropped, f"is lower by {drop_on(scale):g} or more points in", "case")
    if lowest:
        clauses += by_count(
            lowest["answers"], f"was rated {lowest['score']:g} by people in", "case"
        )
    return f"Read first: {'; '.join(clauses)}." if clauses else ""


def _by_people(result: JsonObject) -> str:
    """Say which model is best by people's own ratings, if there are enough to compare models."""
    people = result["models"].get("people", {"gap": None})
    if "gap" in people:
        return ""
    stands = standing(people)
    if not stands["order"]:
        return ""
    return f"By ratings of people: {_best(people, stands, True)}"


def bars(result: JsonObject, scale: Scale) -> Bars:
    """Return a bar per model, best first: its mean score or share of pairs won; of its answers those marked, and those empty.

    Args:
        scale: that of the main judge's scores; None: the shares of pairs won are shown.
    """
    main = result["main_judge"]["name"]
    record, table, rows = result["judges"][main], result["models"][main], []
    shared = result["main_judge"]["shared"]
    means = shared["means"] if shared else {}
    people = result["models"].get("people", {}).get("models", {})
    for name in standing(table)["order"]:
        figures = table["models"][name]
        mean = (means.get(name) or figures.get("score") if scale else None) or figures["win_rate"]
        counts = {
            "with a number that differs": record["differs"].get(name, (0, 0))[0],
            "empty": record["empty"].get(name, 0),
        }
        remarks = [f"{count} {what}" for what, count in counts.items() if count]
        if rated := people.get(name, {}).get("score"):
            remarks.insert(0, f"by people {span(rated)}")
        rows.append((name, mean, ", ".join(remarks)))
    what = "Share of pairs won"
    if scale:
        what = f"Mean score{_where(shared)}, {scale[0]:g} (worst) to {scale[1]:g} (best)"
    rows.sort(key=lambda row: -(row[1]["value"] or 0))
    return Bars(f"{what}. Lines: 95 % intervals", rows, scale)


def report_sentences(result: JsonObject, scale: Scale) -> list[str]:
    """Return what the terminal shows: what to read first, the headline, the regressions by their cases, and the next step."""
    lines = [*filter(None, [alert(result, scale)]), headline(result, scale), *regressions(result)]
    if steps := result["next_steps"]:
        lines.append(f"Next step: {' '.join(steps)}")
    return lines


def regressions(result: JsonObject) -> list[str]:
    """Name the cases in which a model is worse than the baseline, the worst first."""
    cases, questions = _worse(result), result.get("baseline", {}).get("questions", {})
    more = f" and {len(cases) - READ_FIRST} more" if len(cases) > READ_FIRST else ""
    first = ", ".join(questions[case] for case in cases[:READ_FIRST])
    return [f"Where a model is worse, its largest drop first: {first}{more}."] if cases else []


def read_first(result: JsonObject) -> list[tuple[str, str]]:
    """Return (mark of the grid in an address, words) of the cases to read first."""
    worse, differing = _worse(result), result["main_judge"]["differing_cases"]
    others = list(result.get("baseline", {"models": ()})["models"])
    who = others[0] if len(others) == 1 else "a model"
    links = []
    if differing:
        links.append(("#show=differs", f"{several(differing, 'case')} in which a number differs"))
    if worse:
        links.append(("#show=lost", f"{several(len(worse), 'case')} in which {who} is worse"))
    if not links and known_of(result)[2].valid == 0:
        links.append(("#show=invalid", "what the judge wrote"))
    return links


def _worse(result: JsonObject) -> list[str]:
    models = result.get("baseline", {"models": {}})["models"].values()
    ranks = zip_longest(*(model["cases"] for model in models))
    cases = filter(None, chain.from_iterable(ranks))
    return list(dict.fromkeys(cases))


def known_of(result: JsonObject) -> tuple[JsonObject, JsonObject, JudgeProfile]:
    """Return the main judge's table of the models, how they stand by it, and what is known of the judge."""
    main = result["main_judge"]
    table = result["models"][main["name"]]
    stands = standing(table)
    more = {
        "harm": result.get("harm", {}),
        "steps": result.get("next_steps", ()),
        "unclear": stands["unclear"],
    }
    more |= credit_of(result, main["name"])
    return table, stands, profile(main["name"], result["judges"][main["name"]], **more)


def _beside(name: str, figures: JsonObject, result: JsonObject, scale: Scale) -> str:
    """Return a sentence on a model beside the baseline; its direction is that of the figure that was tested."""
    base, models = result["baseline"]["name"], len(result["baseline"]["models"])
    difference = figures["difference"]
    cases = figures["better"] + figures["worse"] + figures["equal"]
    if not cases:
        return f"{name} and {base} have no score on the same case."
    by_scores = difference["low"] is not None or round(difference["value"] or 0, 2) != 0
    tested = difference["value"] if by_scores else figures["better"] - figures["worse"]
    ways = (
        ("scores higher", "scores lower") if by_scores else ("wins more cases", "wins fewer cases")
    )
    text = f"{name} {ways[tested < 0]} than {base}"
    if figures["p_adjusted"] >= LEVEL:
        by_chance = is_clear(difference) and models > 1
        among = f" among {models} comparisons" if by_chance else ""
        text = f"{name} is not clearly different from {base}{among}"
    if cases < result["cases"]["cases"]:
        text += f" in the {cases} of {result['cases']['cases']} cases with a score of both"
    if scale:
        before, after = figures["means"]
        low, high = difference["low"], difference["high"]
        spread = "" if low is None else f", 95 % interval {low:+z.2f} to {high:+z.2f}"
        text += (
            f": mean {before:.2f} → {after:.2f} of {scale[1]:g} ({after - before:+z.2f}{spread})"
        )
    text += (
        f". It is worse in {figures['worse']} of {cases} cases and better in {figures['better']}"
    )
    newly = [f"{count} {name}" for name, count in figures["newly"].items() if count]
    return f"{text}; newly {', '.join(newly)}." if newly else f"{text}."


def _best(table: JsonObject, stands: JsonObject, trusted: bool) -> str:
    if "gap" in table:
        return f"The models cannot be compared: {table['gap']}."
    if trusted:
        return best_of(stands, "is better", "is shown to be best")
    return best_of(stands, "wins more pairs", "clearly wins most pairs")


def _means(result: JsonObject, stands: JsonObject, scale: Scale) -> str:
    """Say the mean score of the first model beside the highest other one, which may be above it; nothing without scores."""
    first, *others = stands["order"] or [None]
    shared = result["main_judge"]["shared"]
    if scale is None or not others:
        return ""
    if shared and not shared["cases"]:
        return "No case has a score of every model, so that mean scores are not compared."
    means = {name: figure["value"] for name, figure, _ in bars(result, scale).rows}
    most = max(means[name] for name in others)
    others_have = "of the others at most" if others[1:] else f"of {others[0]}"
    own = f"{means[first]:.2f} of {scale[1]:g}"
    return f"Mean score of {first}{_where(shared)}: {own}, {others_have} {most:.2f}."


def _where(shared: JsonObject) -> str:
    """Name the cases of the means, where models have scores of different cases."""
    if not shared:
        return ""
    if not shared["cases"]:
        return " in each model's own cases"
    return f" in the {shared['cases']} of {shared['of']} cases with a score of every model"


def credit_of(result: JsonObject, line: str) -> JsonObject:
    """Return what people's ratings, labels or else choices say of a judge, as arguments of `JudgeProfile`."""
    record, certified = result["judges"][line], credit_of_criteria(result, line)
    if "people" not in result:
        name = record["name"]
        return {"agreement": [*certified, *_chosen(name, result.get("choices", {}).get(name, {}))]}
    known = credit(line, record)
    return known | {"agreement": [*known["agreement"], *certified]}


def further(result: JsonObject) -> list[str]:
    """Return sentences on what the answer leaves out: one rater beside the others, other judges, people's choices."""
    judges, main = real_judges(result), result["main_judge"]["name"]
    others, people = [name for name in judges if name != main], result.get("people", {})
    rivals = [name for name in others if people and "outcome" in credit_of(result, name)]
    few = result.get("few_ratings", {"baseline": None, "judges": {main: {}}})
    figures = few["judges"][main]
    estimates = chain.from_iterable(by_model.values() for by_model in figures.values())
    worth = [estimate["worth"] for estimate in estimates if estimate["worth"]]
    sentences = say(
        "further",
        result=result,
        main=main,
        of_criteria=[text for name in others for text in credit_of_criteria(result, name)],
        one=people.get("ceiling", {"concordance": {"value": None}})["concordance"],
        beside_baselines=[against_best(name, judges[name]["best_baseline"]) for name in rivals],
        figures=figures,
        baseline=few["baseline"],
        worth=worth,
    )
    for judge in dict.fromkeys(record["name"] for record in judges.values()):
        if people or judge != result["judges"][main]["name"]:
            sentences += _chosen(judge, result.get("choices", {}).get(judge, {}))
    return sentences


def few_ratings_table(result: JsonObject) -> PageTable:
    """Return the figures of the models by the ratings of some cases and every judge."""
    few, rows = result.get("few_ratings", {"judges": {}}), []
    for judge, models in few["judges"].items():
        for model, figures in models.items():
            for what, figure in figures.items():
                name = FIGURES[what].format(few["baseline"])
                estimates = [span(figure[kind], 3) for kind in KINDS]
                more = [number(figure["weight"], 2), figure["rated"], number(figure["worth"], 0)]
                rows.append([model, judge, name, *estimates, *more])
    head = ["model", "judge", "figure", *KINDS.values(), "weight of the judge", "rated", "worth"]
    caption = (
        "Models by the ratings of some cases and a judge. This holds if the rated cases are a random draw of all cases. "
        "Worth: how many rated cases would give the same precision without the judge"
    )
    return PageTable(head, rows, caption if rows else "")


def leaderboard(result: JsonObject) -> PageTable:
    """Return the models by the main judge, the first one first."""
    main = result["main_judge"]
    table = result["models"][main["name"]]
    people = result["models"].get("people", {}).get("models", {})
    stands = standing(table)
    head = ["model", "rank", "share of pairs won, %", "valid verdicts, %"]
    rows = []
    for model in stands["order"]:
        row = [model, stands["ranks"][model], span(table["models"][model]["win_rate"], 0, 100)]
        row.append(span(main["valid_rates"].get(model), 0, 100))
        if people:
            row.append(span(people.get(model, {}).get("win_rate"), 0, 100))
        rows.append(row)
    head += ["won by people, %"] if people else []
    caption = f"Models by {main['name']}; ranks that overlap are no clear difference"
    return PageTable(head, rows, caption if rows else "")


def _chosen(judge: str, criteria: dict[str, JsonObject]) -> list[str]:
    """Say how often a judge makes the choice that most people made."""
    parts = [
        f"{percent(record['accuracy']['value'])} of the pairs on {criterion} ({interval(record['accuracy'])})"
        for criterion, record in criteria.items()
        if record["accuracy"]["value"] is not None
    ]
    return [f"{judge} makes the choice of most people in {', '.join(parts)}."] if parts else []
