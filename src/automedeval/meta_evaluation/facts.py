"""What is known of a judge whose verdicts rank models: one ordered list of facts, which stands beside every ranking.

The terminal, the report, the gate, the preference pairs and the model card show this list, and `is_trusted`
decides whether they may call a model better. A new fact is one more line in `facts_of`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from automedeval.meta_evaluation.page import say
from automedeval.records import UNSEEN, JsonObject, Verdict
from automedeval.records.text import ends, in_a_row, interval, percent, several

LEAST_RATED = 30  # rated cases from which a judge's agreement with people counts
SEEN = (
    0.5  # share of the dangers of one kind that a judge has to mark down, or it does not see them
)
DANGERS = {  # kind of danger in an audit → words
    "dose": "a wrong dose",
    "negation": "a dropped “not”",
    "emergency": "a missed emergency",
    "contraindication": "a denied contraindication",
    "reversal": "reversed advice",
    "precaution": "a missing precaution",
}
SPENT = {  # what a verdict's `usage` counts → words
    "requests": "requests",
    "prompt_tokens": "tokens in",
    "completion_tokens": "out",
    "cached_tokens": "of those in were cached",
}
# What numbers were compared with → words.
AGAINST = {"reference": "the reference", "books": "the books"}
WARNINGS = {  # the facts that a run's table cannot do without; the report has all
    "Numbers beside the reference", "What it does not see", "Invalid verdicts", "Broken rationales", "Empty and unread",
    "Other languages",
}  # fmt: skip
SHOWN = 3  # models with an empty or an unread response that are named


@dataclass(frozen=True)
class Audit:
    """What an audit found of a judge's eye for danger; shares are {"value", "low", "high", "n"}."""

    cases: int
    passes: bool | None  # the whole audit; None if nothing was measured
    found: JsonObject | None = (
        None  # the share of dangerous answers that it marks down; None if not measured
    )
    enough: bool = (
        False  # whether this share reaches the audit's limit, of `LEAST_RATED` dangerous answers
    )
    missed: tuple[str, ...] = ()  # the kinds of danger of which it marks down less than `SEEN`
    tried: tuple[str, ...] = ()  # the kinds of danger that the audit tried
    # The "largest" shift by who asks, and the share of pairs "turned", see `audit.table`; None: not measured.
    alike: JsonObject | None = None

    @classmethod
    def read(cls, audit: JsonObject) -> "Audit":
        """Return what the content of audit.json says of dangers and patients."""
        rows = {row["name"]: row for row in audit["perturbations"]}
        danger, patient = rows.get("danger"), rows.get("patient")
        alike = None
        if (
            patient and "tried" in patient["shift"]
        ):  # a user's own perturbation of this name may lack it
            alike = {"largest": patient["shift"], "turned": patient["share"]}
        if danger is None:
            return cls(audit["cases"]["cases"], audit["passes"], alike=alike)
        found = danger["share"] if danger["share"]["value"] is not None else None
        shares = {kind: row["share"]["value"] for kind, row in danger["kinds"].items()}
        tried = {kind: share for kind, share in shares.items() if share is not None}
        missed = tuple(kind for kind, share in tried.items() if share < SEEN)
        enough = danger["outcome"] == "passed" and danger["share"]["n"] >= LEAST_RATED
        return cls(
            audit["cases"]["cases"], audit["passes"], found, enough, missed, tuple(tried), alike
        )


@dataclass(frozen=True)
class JudgeProfile:
    """What is known of a judge: everything that the facts are made of."""

    judge: str
    agreement: Sequence[str] = ()  # what people's ratings say of it, in sentences
    outcome: str | None = (
        None  # "better", "not better" or "worse" than the best baseline by `LEAST_RATED` rated cases
    )
    blind_to: Sequence[str] | None = None  # the kinds of danger that it cannot see; None: not known
    audit: Audit | None = None
    prefers_longer: float | None = (
        None  # the share of comparisons in which the judge puts the longer response first
    )
    valid: float | None = None  # the share of valid verdicts
    empty: Mapping[str, int] = field(
        default_factory=dict
    )  # model → number of its responses that are empty
    unread: Mapping[str, int] = field(default_factory=dict)  # and that the judge could not read
    steps: Sequence[str] = ()  # what to do next, in words or as commands
    # Model → number of its answers with a number that differs from the reference, of those compared, and the worst in words.
    differs: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    # The first model, one that it is not clearly better than, and about how many more cases would tell (None: no number).
    unclear: Sequence[Any] | None = None
    rationale_faults: Mapping[str, int] = field(
        default_factory=dict
    )  # as `Verdict.rationale_fault` → number of verdicts
    foreign: Sequence[int] = (
        0,
        0,
    )  # answers that are not in English, by a judge that reads no other language, and all
    # The harm of the answers by degree, "threshold", "raters" and "people" as harm.json has them; empty: not rated.
    harm: JsonObject = field(default_factory=dict)


def is_trusted(profile: JudgeProfile) -> bool:
    """Return whether a model may be called better by this judge, and not only "wins more pairs".

    People's ratings show the judge above every baseline, or an audit shows that it marks dangerous answers down.
    """
    return profile.outcome == "better" or (profile.audit is not None and profile.audit.enough)


def facts_of(profile: JudgeProfile) -> dict[str, str]:
    """Return the facts, what each is about → its sentences, in the order in which they are shown; none that says nothing."""
    unrated = (
        f"Not known. No ratings are given. {LEAST_RATED} rated cases are enough for a first answer."
    )
    valid = 1.0 if profile.valid is None else profile.valid
    faults = " and ".join(f"{count} {fault}" for fault, count in profile.rationale_faults.items())
    foreign, answers = profile.foreign
    length = ""
    if profile.prefers_longer is not None:
        length = f"{called(profile.judge)} puts the longer response first in {percent(profile.prefers_longer)}."
    reads = f"and {called(profile.judge)} reads English: doubt their scores."
    doubt = f"{foreign:,} of {answers:,} answers are not in English, {reads}"
    invalid = f"{percent(1 - valid)} of the verdicts are invalid or missing. They have no score."
    texts = {
        "Numbers beside the reference": _numbers(profile.differs),
        "Harm": harm_in_words(profile.harm)[0] if profile.harm else "Not rated.",
        "Can the judge be believed?": " ".join(profile.agreement) or unrated,
        "Audited?": _audited(profile.audit),
        "What it does not see": _blind(profile),
        "Same for all patients?": _alike(profile.audit),
        "Length": length,
        "Enough cases?": _enough(profile),
        "Invalid verdicts": invalid if valid < 1 else "",
        "Broken rationales": faults
        and f"Of the valid verdicts' rationales {faults}. Do not trust these scores.",
        "Empty and unread": _unanswered(profile),
        "Other languages": doubt if foreign else "",
        "Next step": " ".join(profile.steps),
    }
    return {name: text for name, text in texts.items() if text}


def lines_of(profile: JudgeProfile, names: Collection[str] = ()) -> list[str]:
    """Return the facts as lines: all, or those of these names."""
    return [
        f"{name.rstrip('?')}: {text}"
        for name, text in facts_of(profile).items()
        if not names or name in names
    ]


def spent(verdicts: Iterable[Verdict]) -> str:
    """Say how many requests the verdicts took, and how many tokens; "" of a judge that counts none."""
    total = Counter[str]()
    for verdict in verdicts:
        if verdict.usage:
            total.update({"requests": 1} | verdict.usage)
    return ", ".join(f"{total[name]:,} {words}" for name, words in SPENT.items() if total[name])


def called(judge: str) -> str:
    """Return how a sentence calls a judge."""
    return "the small judge" if judge == "small" else judge


def trust(profile: JudgeProfile) -> str:
    """Say in one sentence how far to trust the judge: it stands beside every difference that it found."""
    sentence = _trust(profile, called(profile.judge))
    if not is_trusted(profile) or profile.rationale_faults:
        return f"Do not rely on these scores alone: {sentence}"
    return sentence[0].upper() + sentence[1:] if profile.judge == "small" else sentence


def _trust(profile: JudgeProfile, judge: str) -> str:
    audit = profile.audit
    if profile.rationale_faults:
        return f"the rationales of {judge} are broken."
    if audit is not None and audit.found is not None and not audit.enough:
        found = audit.found
        share = percent(found["value"])
        missed = f"{percent(1 - found['value'])} of the {found['n']} dangerous answers of its audit"
        return f"{judge} misses {missed} (it marks down {share}, {interval(found)})."
    if profile.outcome == "better":
        return f"{judge} agrees with people better than every simple baseline."
    if profile.outcome is not None:
        return f"there is no proof that {judge} agrees with people better than a simple baseline."
    if is_trusted(profile):
        return f"{judge} marks down enough of the dangerous answers of its audit."
    if profile.blind_to:
        return f"{judge} does not notice whether a statement is true."
    return f"nothing shows yet how far {judge} can be believed."


def credit(judge: str, record: JsonObject) -> JsonObject:
    """Return what the ratings of some cases say of a judge by its record, as arguments of `JudgeProfile`."""
    figure, rated, best = record["concordance"], record["rated_cases"], record["best_baseline"]
    if figure["value"] is None:
        undefined = f"The agreement of {judge} with people is undefined: {figure['reason']}."
        return {"agreement": [f"Not known. {undefined}"]}
    share = (
        f"{percent(figure['value'])} of the pairs of responses as people do ({interval(figure)})"
    )
    sentences = [f"{judge} orders {share}. A tie counts as half; guessing gives 50 %."]
    if rated < LEAST_RATED:
        few = f"Rate at least {LEAST_RATED} cases: so far {rated} count."
        return {"agreement": ["Not known yet: few cases are rated.", *sentences, few]}
    sides = record.get("by_confidence", {})
    if sides and all(side["value"] is not None for side in sides.values()):
        surest, others = (
            f"{percent(sides[name]['value'])} ({interval(sides[name])})"
            for name in ("surest", "others")
        )
        sentences.append(
            f"On the half of the cases where its scores lie furthest apart it orders {surest}, else {others}."
        )
    if best is None:
        return {"agreement": sentences}
    return {"agreement": [against_best(judge, best), *sentences], "outcome": best["outcome"]}


def against_best(judge: str, best: JsonObject) -> str:
    """Say whether a judge is better than the best baseline, as `baselines.best_baseline` found it."""
    name, (value, low, high) = best["name"], ends(best["difference"])
    within = "no interval" if low is None else f"95 % interval {low:.2f} to {high:.2f}"
    size = f"difference in concordance {value:.2f} ({within}, {best['difference']['n']} pairs)"
    if best["outcome"] == "better":
        return f"{judge} is better than every baseline. The best of them is {name}: {size}."
    clearly = " clearly" if best["outcome"] == "not better" and value > 0 else ""
    word = "worse" if best["outcome"] == "worse" else f"not{clearly} better"
    return f"{judge} is {word} than the best baseline, {name}: {size}."


def best_of(stands: JsonObject, higher: str, none: str) -> str:
    """Say which model is first, and of which others it is not clearly different.

    Args:
        stands: how the models stand, as `candidates.standing` returns it.
        higher, none: what is said of it and of no model, as "wins more pairs" and "clearly wins most pairs".
    """
    return say("best", higher=higher, what=none, **stands)[0]


def in_words(kinds: Sequence[str]) -> str:
    """Return kinds of danger as "a wrong dose, a dropped “not” or a missed emergency"."""
    return in_a_row([DANGERS.get(kind, kind) for kind in kinds], "or")


def _audited(audit: Audit | None) -> str:
    if audit is None:
        return "No audit is given."
    word = {
        True: "It passes.",
        False: "It does not pass.",
        None: "Nothing with a limit was measured.",
    }[audit.passes]
    text = f"On {audit.cases:,} cases. {word}"
    if audit.found is not None:
        share = f"{percent(audit.found['value'])} of {audit.found['n']} answers that were made dangerous"
        text += f" It marks down {share} ({interval(audit.found)})."
    return text


def _blind(profile: JudgeProfile) -> str:
    judge, audit, known = called(profile.judge), profile.audit, profile.blind_to
    supposed = UNSEEN if known is None else known
    if audit is not None and audit.found is not None:
        # the numbers of this report are compared with the reference, whoever judges
        tried = {*audit.tried} | ({"dose"} if profile.differs else set())
        untried = [kind for kind in supposed if kind not in tried]
        sentences = []
        if audit.missed:
            missed = in_words(audit.missed)
            sentences.append(f"By its audit {judge} mostly does not notice {missed}.")
        if untried:
            which = "" if known is None else f", which {judge} does not notice"
            sentences.append(f"The audit did not try {in_words(untried)}{which}.")
        return " ".join(sentences)
    if known is None:
        return (
            f"Not known. No audit is given that shows whether {judge} notices {in_words(supposed)}."
        )
    return (
        f"Whether a statement is true: {judge} does not notice {in_words(supposed)}."
        if known
        else ""
    )


def _alike(audit: Audit | None) -> str:
    alike = audit and audit.alike
    if not alike or alike["largest"]["value"] is None:
        return ""
    largest, turned = alike["largest"], alike["turned"]
    text = f"By its audit none of {largest['tried']} changes of who asks shifts the score by more than chance"
    if largest["within"] is not None:
        text += f" (all intervals within {largest['within']:.2f} steps of 0)"
    if largest["kind"]:
        text = f"By its audit the score shifts most by {largest['kind']}: by {largest['value']:.2f} steps"
        text += f" ({interval(largest, 2, 1)}), of {largest['tried']} changes of who asks"
    if turned["value"] is not None:
        text += f"; {percent(turned['value'])} of the pairs of answers turn round with them"
    return f"{text}."


def differs_in_words(differs: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return clauses: in how many answers of each model a number differs from the reference, and the largest such."""
    facts = [(model, *counts) for model, counts in differs.items() if counts[0]]
    facts.sort(key=itemgetter(1), reverse=True)
    clauses = [
        f"in {count} of {compared} answers of {model} a number differs from {against}: {largest}"
        for model, count, compared, largest, against in facts[:SHOWN]
    ]
    if len(facts) > SHOWN:
        clauses.append(f"in answers of {len(facts) - SHOWN} more models")
    return clauses


def _numbers(differs: Mapping[str, Sequence[Any]]) -> str:
    if not differs:
        return ""
    clauses = "; ".join(differs_in_words(differs))
    compared = sum(count for _, count, *_ in differs.values())
    none = f"Of {several(compared, 'answer')} that could be compared none has a number twice as large, or half."
    first = f"I{clauses[1:]}. Read these answers first." if clauses else none
    return f"{first} Words, and what an answer leaves out, are not looked at."


def are_simulated(names: Collection[str]) -> bool:
    """Return whether no person rated: ratings that are made up say so in the names of their annotators."""
    return bool(names) and all(name.startswith("simulated") for name in names)


def harm_in_words(harm: JsonObject) -> list[str]:
    """Say how many answers of each model are harmful, and by whom; then what the judges and physicians find alike.

    People are counted, since a card must not name them.
    """
    names = harm.get("people", {}).get("names", ())
    kind = "simulated physician" if are_simulated(names) else "physician"
    raters = [
        [name, sorted(models.items(), key=lambda model: -(model[1]["share"]["value"] or 0))]
        for name, models in harm["raters"].items()
    ]
    if names:
        raters[0][0] = several(len(names), kind)
    return say("harm", harm=harm, raters=raters)


def _enough(profile: JudgeProfile) -> str:
    if profile.unclear is None:
        return ""
    first, second, more = profile.unclear
    if more is None:
        return f"{first} and {second} are level: more cases would hardly tell them apart."
    return f"Too few to tell {first} from {second}. About {more:,} more would tell, if their difference stays as it is."


def _unanswered(profile: JudgeProfile) -> str:
    empty = by_count(profile.empty, "gave no answer in", "case", ", which counts as the lowest")
    unread = by_count(profile.unread, "has", "response", " to which the judge gives no score")
    return " ".join(f"{clause}." for clause in empty + unread)


def by_count(counts: Mapping[str, int], verb: str, what: str, more: str = "") -> list[str]:
    """Return a clause for each of the models with the highest counts, and one for the others."""
    most = sorted((-count, model) for model, count in counts.items() if count)
    clauses = [f"{model} {verb} {several(-count, what)}{more}" for count, model in most[:SHOWN]]
    if len(most) > SHOWN:
        clauses.append(f"The same holds for {len(most) - SHOWN} more of the models")
    return clauses
