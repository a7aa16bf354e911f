"""The cases of a file in memory, and where each response stands in the flat arrays of a panel."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from automedeval.records import Case, RecordError, read_cases
from automedeval.stats.agreement import Panel


@dataclass
class Cases:
    """The cases of a file, and where each response stands in the flat arrays.

    They stand in an order that their ids alone decide, so that the order of the file changes no figure (resamples and folds
    draw cases by their place); `file_order` leads back.
    """

    records: list[Case]
    source: str

    def __post_init__(self) -> None:
        placed = sorted(
            enumerate(self.records), key=lambda pair: hashlib.sha256(pair[1].id.encode("utf-8", "replace")).digest()
        )
        self.records = [case for _, case in placed]
        self.file_order = sorted(range(len(placed)), key=lambda number: placed[number][0])
        self.index = {case.id: number for number, case in enumerate(self.records)}
        sizes = [len(case.responses) for case in self.records]
        self.panel = Panel.of_sizes(sizes)
        self.start = np.cumsum([0, *sizes])

    @classmethod
    def read(cls, path: str, limit: int | None = None) -> "Cases":
        """Read the first `limit` cases of a file, or all."""
        records = []
        for case in read_cases(path):
            records.append(case)
            if len(records) == limit:
                break
        return cls(records, path)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def responses(self) -> int:
        return int(self.start[-1])

    def folds(self, count: int = 5) -> np.ndarray:
        """Return each case's fold, int [cases]."""
        return np.arange(len(self)) % count

    @cached_property
    def models(self) -> list[str]:
        """The candidates' names, in the order in which they turn up in the file."""
        return list(dict.fromkeys(name for number in self.file_order for name in self.records[number].models))

    @cached_property
    def model_of(self) -> np.ndarray:
        """The number of the model that gave each response."""
        numbers = {name: number for number, name in enumerate(self.models)}
        return np.array([numbers[name] for case in self.records for name in case.models])

    @cached_property
    def pair_index(self) -> dict[tuple[int, int], int]:
        """(first response, second response) → number of the pair."""
        return {pair: number for number, pair in enumerate(zip(*map(np.ndarray.tolist, self.panel.pairs)))}

    def locate(self, case: int, model: str) -> int:
        """Return where a model's response to a case stands; KeyError if it has none."""
        try:
            return int(self.start[case]) + self.records[case].models.index(model)
        except ValueError:
            raise KeyError(model) from None


LARGEST = 1e6  # of a score; squares of larger ones lose what is compared


def check_number(value: float, name: str, place: str) -> None:
    """Raise RecordError unless a score is a number that can be computed with."""
    if not abs(value) <= LARGEST:
        raise RecordError(f"{place}: {name!r} must be a number from -{LARGEST:g} to {LARGEST:g}, not {str(value)[:40]}")


class Elsewhere:
    """Counts the records of a file that are about cases which are not among ours."""

    def __init__(self, what: str, cases: Cases):
        self.what, self.cases, self.unknown = what, cases, Counter()

    def case(self, case_id: str) -> int | None:
        """Return the number of a case, None if it is not ours."""
        if case_id not in self.cases.index:
            self.unknown[case_id] += 1
        return self.cases.index.get(case_id)

    def notes(self) -> list[str]:
        """Return what was left out, in words."""
        if not self.unknown:
            return []
        total, first = sum(self.unknown.values()), next(iter(self.unknown))
        others = f"{len(self.unknown)} cases that are not among these {len(self.cases)}, {first!r} for one"
        return [f"{self.what}: {total} left out, of {others}"]
