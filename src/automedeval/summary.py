"""The report in words: which model is better, how sure, and how far each judge can be believed."""

from typing import Any

CONTEST = 6  # pairs of models that are put into words


def percent(share: float) -> str:
    """Return a share in whole per cent."""
    return f"{100 * share:.0f} %"


def _interval_words(estimate: dict[str, Any]) -> str:
    if estimate["low"] is None:
        return "no interval"
    return f"95 % interval {100 * estimate['low']:.0f}–{100 * estimate['high']:.0f}"


def real_judges(result: dict[str, Any]) -> dict[str, dict]:
    return {name: record for name, record in result["judges"].items() if record["kind"] == "judge"}


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
            sentences += _winners(judge, [(record["criterion"], result["models"][name]) for name, record in rows])
    for gap, names in gaps(result).items():
        who = "" if len(names) == len(result["models"]) else f" by {', '.join(names)}"
        sentences.append(f"Which model is better cannot be said{who}: {gap}.")
    if "people" not in result:
        sentences.append("Nobody rated these responses here: how far a judge agrees with people is not known.")
        return sentences
    for judge, rows in by_judge.items():
        if rows[0][1]["criterion"] is None:
            sentences.append(_credit(judge, rows[0][1], result["people"].get("ceiling")))
        else:
            known = [(record["criterion"], record["concordance"]) for _, record in rows]
            parts = [
                f"{percent(e['value'])} by {name} ({_interval_words(e)})" for name, e in known if e["value"] is not None
            ]
            if parts:
                sentences.append(
                    f"Of the pairs of responses that people told apart, {judge} orders as people do "
                    f"{', '.join(parts)}; 50 % is chance."
                )
        valid = rows[0][1]["valid_rate"]["value"]
        if valid not in (None, 1.0):
            sentences.append(f"{percent(1 - valid)} of {judge}'s verdicts are invalid or missing, and count as wrong.")
    return sentences


def gaps(result: dict[str, Any]) -> dict[str, list[str]]:
    """Return why there are no figures per model → the judges of which that is so."""
    found: dict[str, list[str]] = {}
    for name, table in result["models"].items():
        if "gap" in table:
            found.setdefault(table["gap"], []).append(name)
    return found


def _contest(judge: str, table: dict[str, Any]) -> list[str]:
    """Say which of every two models is better, the clearest first."""
    if "gap" in table:
        return []
    sentences = []
    for pair in sorted(table["pairs"], key=lambda p: -abs(p["margin"]["value"]))[:CONTEST]:
        first, second = pair["pair"]
        win, loss = ("win", "loss") if pair["margin"]["value"] >= 0 else ("loss", "win")
        if win == "loss":
            first, second = second, first
        shares = f"{percent(pair[win]['value'])} of cases ({_interval_words(pair[win])})"
        shares += f", worse in {percent(pair[loss]['value'])}"
        shares += f", level in {percent(pair['tie']['value'])}" if pair["tie"]["value"] else ""
        low, high = pair["margin"]["low"], pair["margin"]["high"]
        if low is not None and (low > 0 or high < 0):
            sentences.append(f"By {judge}, {first} is better than {second} in {shares}.")
        else:
            sentences.append(
                f"By {judge}, {first} and {second} cannot be told apart with these cases: {first} is better in {shares}."
            )
    return sentences


def _winners(judge: str, tables: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Say which model wins most comparisons on each criterion."""
    parts = []
    for criterion, table in tables:
        if "gap" not in table:
            rates = {model: record["win_rate"] for model, record in table["models"].items()}
            best = max(rates, key=lambda model: rates[model]["value"])
            parts.append(f"{best} on {criterion} ({percent(rates[best]['value'])}, {_interval_words(rates[best])})")
    return (
        [f"By {judge}, the model that wins most comparisons, ties counted half, is {', '.join(parts)}."]
        if parts
        else []
    )


def _credit(judge: str, record: dict[str, Any], ceiling: dict[str, Any] | None) -> str:
    """Say how far one judge agrees with people, and how far they agree with each other."""
    headline = record[record["headline"]]
    if headline["value"] is None:
        return f"How far {judge} agrees with people is undefined: {headline['reason']}."
    text = (
        f"Of the pairs of responses that people told apart, {judge} orders {percent(headline['value'])} as people do "
        f"({_interval_words(headline)}; 50 % is chance)"
    )
    against = record.get("concordance_with_the_other_raters")
    if against and ceiling and ceiling["concordance"]["value"] is not None:
        text += (
            f"; against the mean of all raters but one it reaches {percent(against['value'])}, "
            f"where that one rater reaches {percent(ceiling['concordance']['value'])}"
        )
    return text + "."
