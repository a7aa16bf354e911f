"""Double-blind preferences: which of two judges' verdicts physicians preferred, criterion by criterion.

Source: the paper's section 4.2, Appendix E and Figure 5b. A physician sees two verdicts on a case, knows neither's judge, and
prefers one of them or neither on each criterion.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from automedeval import resampling
from automedeval.cases import Cases, Elsewhere
from automedeval.records import Preference, RecordError, read_placed

TIE = "tie"
OUTCOMES = ("first", TIE, "second")


@dataclass
class Preferences:
    """What people preferred of two judges.

    `votes` maps each criterion to every vote on it: (number of the case, annotator, place in OUTCOMES).
    """

    judges: tuple[str, str]
    votes: dict[str, list[tuple[int, str, int]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, case: int, preference: Preference) -> None:
        """Count a preference between these two judges, whichever of them it names first."""
        place = 1 if preference.choice == TIE else 2 * self.judges.index(preference.choice)
        self.votes[preference.criterion].append((case, preference.annotator, place))


def read_preferences(path: str, cases: Cases) -> tuple[list[Preferences], list[str]]:
    """Read people's preferences: one `Preferences` for every two judges, and notes.

    Raises:
        RecordError: a record that is none, one that came before, or none of these cases.
    """
    return gather_preferences(read_placed(path, Preference), cases, path)


def gather_preferences(
    placed: Iterable[tuple[str, Preference]], cases: Cases, source: str
) -> tuple[list[Preferences], list[str]]:
    """Sort preferences by the two judges that they are about; see `read_preferences`."""
    found: dict[frozenset[str], Preferences] = {}
    seen = set()
    other = Elsewhere(f"{source}: preferences", cases)
    for place, given in placed:
        if TIE in given.judges:
            raise RecordError(f"{place}: a judge cannot be called {TIE!r}: the word is a choice")
        if (case := other.case(given.case_id)) is None:
            continue
        pair = frozenset(given.judges)
        key = (case, pair, given.annotator, given.criterion)
        if key in seen:
            raise RecordError(
                f"{place}: {given.annotator!r} preferred one of these verdicts on case {given.case_id!r} "
                f"on {given.criterion!r} before"
            )
        seen.add(key)
        found.setdefault(pair, Preferences(given.judges)).add(case, given)
    if not found:
        raise RecordError(f"{source}: no preference about any case in {cases.source}")
    return list(found.values()), other.notes()


def preference_shares(preferences: Iterable[Preferences], cases: int) -> list[dict[str, Any]]:
    """Return, for every two judges and every criterion, the shares of votes for the first, for neither and for the second.

    Args:
        cases: how many there are.

    Returns:
        {"judges", "criteria": {criterion: {"first", "tie", "second", "margin", "annotators", "cases"}}} each, shares and
        margin (first less second) as `Statistic`; `annotators` maps each to their own three shares, whose spread is what the
        paper's error bars show.
    """
    records = []
    for each in preferences:
        criteria = {}
        for criterion, votes in each.votes.items():
            case, place = (np.array([vote[at] for vote in votes]) for at in (0, 2))
            counts = np.stack([np.bincount(case[place == number], minlength=cases) for number in range(3)]).astype(
                float
            )
            total, reason = counts.sum(axis=0), "no preference"
            shares = {name: resampling.ratio(count, total, len(votes), reason) for name, count in zip(OUTCOMES, counts)}
            margin = resampling.mean(counts[0] - counts[2], total, len(votes), reason, (-1.0, 1.0))
            own = defaultdict(lambda: [0, 0, 0])
            for _, annotator, number in votes:
                own[annotator][number] += 1
            annotators = {name: [n / sum(own[name]) for n in own[name]] for name in sorted(own)}
            criteria[criterion] = {
                **shares,
                "margin": margin,
                "annotators": annotators,
                "cases": int((total > 0).sum()),
            }
        records.append({"judges": list(each.judges), "criteria": criteria})
    return records
