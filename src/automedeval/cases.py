"""The cases of a file in memory, and where each response stands in the flat arrays of a panel."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from automedeval.agreement import Panel
from automedeval.records import Case, read_cases


@dataclass
class Cases:
    """The cases of a file, in its order, and where each response stands in the flat arrays."""

    records: list[Case]
    source: str

    def __post_init__(self) -> None:
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

    @cached_property
    def models(self) -> list[str]:
        """The candidates' names, in the order in which they turn up."""
        return list(dict.fromkeys(name for case in self.records for name in case.models))

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
