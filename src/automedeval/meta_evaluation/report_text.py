"""Put the result into sentences: which model is better, and how well each judge agrees with people."""

from typing import Any

from automedeval.meta_evaluation import paper_table_text
from automedeval.reports.text import against_best, interval, percent

CONTEST = 6  # pairs of models that are put into words
HALF = "A tie counts as half; guessing gives 50 %."


def real_judges(result: dict[str, Any]) -> dict[str, dict]:
    """Return the records of judges that are no baselines."""
    return {name: record for name, record in result["judges"].items() if record["kind"] == "judge"}


def summary(result: dict[str, Any]) -> list[str]:
    """Return sentences on which model is better, with intervals, and on how well each judge agrees with people."""
    sentences = []
    by_judge: dict[str, list[tuple[dict, dict]]] = {}  # judge → its records, each with its comparison of the models
    for name, record in real_judges(result).items():
        by_judge.setdefault(record["name"], []).append((record, result["models"][name]))
    for judge, rows in by_judge.items():
        known = [row for row in rows if "gap" not in row[1]]
        if rows[0][0]["criterion"] is None:
            sentences += [sentence for _, table in known for sentence in _contest(judge, table)]
        else:
            sentences += _winners(judge, known)
    for gap, names in gaps(result).items():
        who = "" if len(names) == len(result["models"]) else f" by {', '.join(names)}"
        sentences.append(f"The models cannot be compared{who}: {gap}.")
    for judge, rows in by_judge.items():
        if "people" in result:
            sentences += _credit(judge, [record for record, _ in rows])
            for record, _ in rows:
                name = judge if record["criterion"] is None else f"{judge}: {record['criterion']}"
                sentences += against_best(name, record["best_baseline"])
        sentences += _chosen(judge, result.get("choices", {}).get(judge, {}))
        valid = rows[0][0]["valid_rate"]["value"]
        if valid not in (None, 1.0):
            wrong = " They count as wrong." if "people" in result else ""
            sentences.append(f"{percent(1 - valid)} of {judge}'s verdicts are invalid or missing.{wrong}")
    for compared in result.get("preferences", []):
        sentences += _preferred(compared)
    if "table2" in result:
        sentences += paper_table_text.sentences(result["table2"])
    if "rounds" in result:
        sentences += _rounds(result["rounds"])
    if "people" not in result and not result.get("choices"):
        sentences.append("There are no ratings: how well a judge agrees with people is not known.")
    return sentences


def gaps(result: dict[str, Any]) -> dict[str, list[str]]:
    """Return why there are no figures per model → the judges of which that is so."""
    found: dict[str, list[str]] = {}
    for name, table in result["models"].items():
        if "gap" in table:
            found.setdefault(table["gap"], []).append(name)
    return found


def _contest(judge: str, table: dict[str, Any]) -> list[str]:
    """Compare the pairs of models that differ most; one is better only at p < 0.05, adjusted."""
    sentences = []
    pairs = sorted(table["pairs"], key=lambda pair: (_adjusted(pair), -abs(pair["margin"]["value"])))
    for pair in pairs[:CONTEST]:
        (first, second), win, loss = pair["pair"], "win", "loss"
        if pair["margin"]["value"] < 0:
            first, second, win, loss = second, first, loss, win
        shares = f"{percent(pair[win]['value'])} of {pair[win]['n']} cases ({interval(pair[win])})"
        shares += f", worse in {percent(pair[loss]['value'])}"
        shares += f", equal in {percent(pair['tie']['value'])}" if pair["tie"]["value"] else ""
        unclear = "" if _adjusted(pair) < 0.05 else f"there is no clear difference between {first} and {second}. "
        than = "" if unclear else f" than {second}"
        sentences.append(f"By {judge}, {unclear}{first} is better{than} in {shares}.")
    if len(pairs) > CONTEST:
        some = f"the {CONTEST} of {len(pairs)} pairs of models"
        sentences.append(f"These are {some} with the clearest differences by {judge}.")
    return sentences


def _adjusted(pair: dict[str, Any]) -> float:
    return 1.0 if pair["p_adjusted"] is None else pair["p_adjusted"]


def _winners(judge: str, tables: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Name the model that wins most comparisons on each criterion, where one does."""
    parts, none = [], []
    for record, table in tables:
        rates = {model: found["win_rate"] for model, found in table["models"].items()}
        best = max(rates, key=lambda model: rates[model]["value"])
        if rates[best]["low"] is not None and rates[best]["low"] > 0.5:
            least = ", being chosen least" if record["polarity"] == "worse" else ""
            share = f"{percent(rates[best]['value'])}, {interval(rates[best])}{least}"
            parts.append(f"{best} on {record['criterion']} ({share})")
        else:
            none.append(record["criterion"])
    sentences = []
    if parts:
        best = ", ".join(parts)
        sentences.append(f"By {judge}, the model that wins most comparisons is {best}. A tie counts as half a win.")
    if none:
        sentences.append(f"By {judge}, no model clearly wins more than half of its comparisons on {', '.join(none)}.")
    return sentences


def _credit(judge: str, records: list[dict[str, Any]]) -> list[str]:
    """Say how well one judge agrees with people, and how well they agree with each other."""
    if records[0]["criterion"] is not None:
        known = [(each["criterion"], each["concordance"]) for each in records]
        parts = [f"{percent(e['value'])} by {name} ({interval(e)})" for name, e in known if e["value"] is not None]
        return [f"{judge} orders pairs of responses as people do in {', '.join(parts)}. {HALF}"] if parts else []
    record = records[0]
    headline = record[record["headline"]]
    if headline["value"] is None:
        return [f"The agreement of {judge} with people is undefined: {headline['reason']}."]
    share = percent(headline["value"])
    text = f"{judge} orders {share} of the pairs of responses as people do ({interval(headline)}). {HALF}"
    others = record.get("against_the_other_raters")
    if others and None not in (shares := [others[name]["value"] for name in ("judge", "one_rater")]):
        ours, one = map(percent, shares)
        text += f" Compared with all raters but one, on the same pairs: {judge} {ours}, that one rater {one}."
    return [text, *_kept(judge, record.get("risk_coverage") or [])]


def _kept(judge: str, curve: list[dict[str, Any]]) -> list[str]:
    """Compare the more confident half of the verdicts with all: a description of these cases, not a guarantee."""
    if not curve or curve[-1]["risk"]["value"] is None:
        return []
    half, whole = min(curve, key=lambda point: abs(point["coverage"] - 0.5)), curve[-1]
    if abs(half["coverage"] - 0.5) > 0.1 or whole is half:
        return []
    return [
        f"In the {half['cases']} cases of {judge}'s highest confidence, {percent(half['risk']['value'])} of the pairs are in "
        f"the wrong order ({interval(half['risk'])}); in all {whole['cases']} cases {percent(whole['risk']['value'])}."
    ]


def _rounds(rounds: dict[str, Any]) -> list[str]:
    """Say what the rounds of introspection reached, and what further ones are expected to reach."""
    sentences = []
    known = [(line, line["triple_accuracy"]) for line in (rounds["table"][0], rounds["table"][-1])]
    if len(rounds["table"]) > 1 and all(share["value"] is not None for _, share in known):
        ends = (
            f"{100 * share['value']:.1f} % after round {line['round']} ({line['judge']}; {interval(share)})"
            for line, share in known
        )
        sentences.append(f"Triple accuracy is {' and '.join(ends)}.")
    forecast = rounds["forecast"]
    if "reason" in forecast:
        return [*sentences, f"There is no forecast for further rounds: {forecast['reason']}."]
    sentences.append(
        f"The limit of the curve fitted to the rounds is {100 * forecast['a']:.1f} %. "
        f"From round {forecast['round_of_small_rest']} on it is less than half a point away."
    )
    expected = forecast["next"][0]
    if expected["low"] is None:
        sentences.append(f"The curve has no interval: {forecast['no_interval']}.")
    else:
        value = f"{100 * expected['value']:.1f} % ({interval(expected)})"
        sentences.append(f"On the same cases round {expected['round']} is expected at {value}.")
    return sentences


def _chosen(judge: str, criteria: dict[str, dict[str, Any]]) -> list[str]:
    """Say how often a judge makes the choice that most people made."""
    parts = [
        f"{percent(record['accuracy']['value'])} on {criterion} ({interval(record['accuracy'])})"
        for criterion, record in criteria.items()
        if record["accuracy"]["value"] is not None
    ]
    return [f"{judge} makes the choice of most people in {', '.join(parts)} of the pairs."] if parts else []


def _preferred(compared: dict[str, Any]) -> list[str]:
    """Say which of two judges' verdicts people preferred; one of them only at p < 0.05, adjusted."""
    one, two = compared["judges"]
    sentences = []
    for criterion, record in compared["criteria"].items():
        shares = f"{one} in {percent(record['first']['value'])} of {record['first']['n']} choices "
        shares += f"({interval(record['first'])}), {two} in {percent(record['second']['value'])} "
        shares += f"({interval(record['second'])}), a tie in {percent(record['tie']['value'])}"
        better = one if record["margin"]["value"] > 0 else two
        prefer = f"prefer {better}'s verdicts" if _adjusted(record) < 0.05 else "have no clear preference"
        sentences.append(f"On {criterion} people {prefer}: {shares}.")
    return sentences
