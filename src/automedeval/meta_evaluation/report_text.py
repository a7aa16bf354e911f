"""The report in words: which model is better, how sure, and how far each judge can be believed."""

from typing import Any

from automedeval.reports.text import percent, real_judges

CONTEST = 6  # pairs of models that are put into words
HALF = "a tie counts half, and tying or guessing always gives 50 %"


def _interval_words(estimate: dict[str, Any]) -> str:
    if estimate["low"] is None:
        return "no interval"
    return f"95 % interval {100 * estimate['low']:.0f}–{100 * estimate['high']:.0f}"


def summary(result: dict[str, Any]) -> list[str]:
    """Say in words what a reader decides by: which model is better, how sure, and how far the judge can be believed."""
    sentences = []
    by_judge: dict[str, list[tuple[str, dict]]] = {}
    for name, record in real_judges(result).items():
        by_judge.setdefault(record["name"], []).append((name, record))
    for judge, rows in by_judge.items():
        if rows[0][1]["criterion"] is None:
            sentences += _contest(judge, result["models"][rows[0][0]])
        else:
            sentences += _winners(judge, [(record, result["models"][name]) for name, record in rows])
    for gap, names in gaps(result).items():
        who = "" if len(names) == len(result["models"]) else f" by {', '.join(names)}"
        sentences.append(f"Which model is better cannot be said{who}: {gap}.")
    for judge, rows in by_judge.items():
        if "people" in result:
            sentences += _credit(judge, [record for _, record in rows])
        sentences += _chosen(judge, result.get("choices", {}).get(judge, {}))
        valid = rows[0][1]["valid_rate"]["value"]
        if valid not in (None, 1.0):
            wrong = ", and count as wrong" if "people" in result else ""
            sentences.append(f"{percent(1 - valid)} of {judge}'s verdicts are invalid or missing{wrong}.")
    for compared in result.get("preferences", []):
        sentences += _preferred(compared)
    if "rounds" in result:
        sentences += _rounds(result["rounds"])
    if "people" not in result and not result.get("choices"):
        sentences.append("Nobody rated these responses here: how far a judge agrees with people is not known.")
    return sentences


def gaps(result: dict[str, Any]) -> dict[str, list[str]]:
    """Return why there are no figures per model → the judges of which that is so."""
    found: dict[str, list[str]] = {}
    for name, table in result["models"].items():
        if "gap" in table:
            found.setdefault(table["gap"], []).append(name)
    return found


def _contest(judge: str, table: dict[str, Any]) -> list[str]:
    """Say which of two models is better, of all pairs or of those that differ most; better only at p < 0.05, adjusted."""
    if "gap" in table:
        return []
    sentences = []
    pairs = sorted(table["pairs"], key=lambda pair: (_adjusted(pair), -abs(pair["margin"]["value"])))
    for pair in pairs[:CONTEST]:
        first, second = pair["pair"]
        win, loss = ("win", "loss") if pair["margin"]["value"] >= 0 else ("loss", "win")
        if win == "loss":
            first, second = second, first
        shares = f"{percent(pair[win]['value'])} of {pair[win]['n']} cases ({_interval_words(pair[win])})"
        shares += f", worse in {percent(pair[loss]['value'])}"
        shares += f", level in {percent(pair['tie']['value'])}" if pair["tie"]["value"] else ""
        if _adjusted(pair) < 0.05:
            sentences.append(f"By {judge}, {first} is better than {second} in {shares}.")
        else:
            sentences.append(
                f"By {judge}, {first} and {second} cannot be told apart with these cases: {first} is better in {shares}."
            )
    if len(pairs) > CONTEST:
        sentences.append(f"These are the {CONTEST} of {len(pairs)} pairs of models that {judge} tells apart best.")
    return sentences


def _adjusted(pair: dict[str, Any]) -> float:
    return 1.0 if pair["p_adjusted"] is None else pair["p_adjusted"]


def _winners(judge: str, tables: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Say which model wins most comparisons on each criterion, where one does."""
    parts, none = [], []
    for record, table in tables:
        if "gap" in table:
            continue
        rates = {model: found["win_rate"] for model, found in table["models"].items()}
        best = max(rates, key=lambda model: rates[model]["value"])
        if rates[best]["low"] is not None and rates[best]["low"] > 0.5:
            least = ", being chosen least" if record["polarity"] == "worse" else ""
            share = f"{percent(rates[best]['value'])}, {_interval_words(rates[best])}{least}"
            parts.append(f"{best} on {record['criterion']} ({share})")
        else:
            none.append(record["criterion"])
    sentences = []
    if parts:
        sentences.append(f"By {judge}, the model that wins most comparisons, ties counted half, is {', '.join(parts)}.")
    if none:
        sentences.append(f"By {judge}, no model clearly wins more than half of its comparisons on {', '.join(none)}.")
    return sentences


def _credit(judge: str, records: list[dict[str, Any]]) -> list[str]:
    """Say how far one judge agrees with people, and how far they agree with each other."""
    if records[0]["criterion"] is not None:
        known = [(each["criterion"], each["concordance"]) for each in records]
        parts = [
            f"{percent(e['value'])} by {name} ({_interval_words(e)})" for name, e in known if e["value"] is not None
        ]
        if not parts:
            return []
        return [f"{judge} agrees with the order that people give pairs of responses to {', '.join(parts)}; {HALF}."]
    record = records[0]
    headline = record[record["headline"]]
    if headline["value"] is None:
        return [f"How far {judge} agrees with people is undefined: {headline['reason']}."]
    text = (
        f"{judge} agrees to {percent(headline['value'])} with the order that people give pairs of responses "
        f"({_interval_words(headline)}; {HALF})"
    )
    others = record.get("against_the_other_raters")
    if others and None not in (others["judge"]["value"], others["one_rater"]["value"]):
        text += (
            f"; with the order that all raters but one give, to {percent(others['judge']['value'])}, "
            f"where that one rater reaches {percent(others['one_rater']['value'])} on the same pairs"
        )
    return [text + ".", *_kept(judge, record.get("risk_coverage") or [])]


def _kept(judge: str, curve: list[dict[str, Any]]) -> list[str]:
    """Say what handing the less sure half of the cases to people would change: what was, and no promise."""
    if not curve or curve[-1]["risk"]["value"] is None:
        return []
    half, whole = min(curve, key=lambda point: abs(point["coverage"] - 0.5)), curve[-1]
    if abs(half["coverage"] - 0.5) > 0.1 or whole is half:
        return []
    return [
        f"Of the {half['cases']} cases that {judge} is surest of, {percent(half['risk']['value'])} of the pairs are in the "
        f"wrong order ({_interval_words(half['risk'])}), of all {whole['cases']} cases {percent(whole['risk']['value'])}."
    ]


def _rounds(rounds: dict[str, Any]) -> list[str]:
    """Say how far the rounds of introspection went, and how far further ones can be expected to go."""
    sentences = []
    ends = [rounds["table"][0], rounds["table"][-1]]
    shares = [line["listwise_accuracy"] for line in ends]
    if len(rounds["table"]) > 1 and all(share["value"] is not None for share in shares):
        first, last = (
            f"{100 * share['value']:.1f} % after round {line['round']} ({line['judge']}; {_interval_words(share)})"
            for line, share in zip(ends, shares)
        )
        sentences.append(f"Listwise accuracy is {first} and {last}.")
    forecast = rounds["forecast"]
    if "reason" in forecast:
        return [*sentences, f"How far further rounds would go cannot be said: {forecast['reason']}."]
    text = f"The curve fitted to the rounds tends to {100 * forecast['a']:.1f} %; less than half a point remains "
    text += f"from round {forecast['round_of_small_rest']} on"
    expected = forecast["next"][0]
    if expected["low"] is None:
        text += f". It has no interval ({forecast['no_interval']}), and is no surer than the figures it goes through"
    else:
        text += f"; on the same cases round {expected['round']} is expected at {100 * expected['value']:.1f} %, "
        text += f"95 % interval {100 * expected['low']:.0f}–{100 * expected['high']:.0f}"
    return [*sentences, text + "."]


def _chosen(judge: str, criteria: dict[str, dict[str, Any]]) -> list[str]:
    """Say how often a judge makes the choice that most people made."""
    parts = [
        f"{percent(record['accuracy']['value'])} on {criterion} ({_interval_words(record['accuracy'])})"
        for criterion, record in criteria.items()
        if record["accuracy"]["value"] is not None
    ]
    return [f"{judge} makes the choice that most people made for {', '.join(parts)} of the pairs."] if parts else []


def _preferred(compared: dict[str, Any]) -> list[str]:
    """Say of which of two judges people preferred the verdicts; of one only at p < 0.05, adjusted."""
    one, two = compared["judges"]
    sentences = []
    for criterion, record in compared["criteria"].items():
        shares = f"{one} in {percent(record['first']['value'])} of {record['first']['n']} choices "
        shares += f"({_interval_words(record['first'])}), {two} in {percent(record['second']['value'])} "
        shares += f"({_interval_words(record['second'])}), neither in {percent(record['tie']['value'])}"
        if _adjusted(record) < 0.05:
            better = one if record["margin"]["value"] > 0 else two
            sentences.append(f"On {criterion} people prefer {better}'s verdicts: {shares}.")
        else:
            sentences.append(f"On {criterion} people prefer neither judge's verdicts clearly: {shares}.")
    return sentences
