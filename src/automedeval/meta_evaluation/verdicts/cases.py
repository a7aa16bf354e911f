"""Hold the cases of a file in memory, and number their responses for flat arrays."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy import ndarray

from automedeval.metrics.lexical import longer_text
from automedeval.records import Case, CaseCriterion, Choice, RecordError, Response
from automedeval.records.readers import PlacedRecord
from automedeval.records.tables.cases import CaseFile
from automedeval.records.text import several
from automedeval.records.thoughts import note_on_thoughts
from automedeval.records.types import answer_digest, each_once
from automedeval.stats.agreement import CHOICES, Panel
from automedeval.stats.bootstrap import only
from automedeval.stats.checklist import Score, checklist_scores


def clusters_of(cases: Iterable[Case]) -> ndarray:
    """Return the number of each case's cluster: int [cases]; a case without one is its own."""
    named = [case.cluster or at for at, case in enumerate(cases)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(named))}
    return np.array([numbers[name] for name in named], int)


def units_of(cases: Sequence[Case]) -> str:
    """Return what intervals are over: cases, or clusters of them where some have one in common."""
    clusters = len(np.unique(clusters_of(cases)))
    return "cases" if clusters == len(cases) else f"{several(clusters, 'cluster')} of cases"


@dataclass(eq=False)
class Cases:
    """Cases, with their responses and pairs of responses numbered.

    The cases are sorted by a hash of their ids, so that the order of the file changes no figure (resamples and folds draw cases
    by number). `file_order` lists the numbers in the order of the file; `start` has the number of each case's first response.
    """

    records: list[Case]  # in any order
    source: str  # the name of their file, for notes and error messages
    # What to know of the table of answers that they were read from.
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        hashes = [hashlib.sha256(case.id.encode()).digest() for case in self.records]
        places = sorted(range(len(hashes)), key=hashes.__getitem__)
        self.records = [self.records[place] for place in places]
        self.file_order = np.argsort(places).tolist()
        self.index = {case.id: number for number, case in enumerate(self.records)}
        sizes = [len(case.responses) for case in self.records]
        self.panel = Panel.of_sizes(sizes)
        self.start = np.cumsum([0, *sizes])

    @classmethod
    def read(cls, path: str, limit: int | None = None, **table: Any) -> "Cases":
        """Read the first `limit` cases of a file, or all, with `read_cases`."""
        file = CaseFile(path, **table)
        records = file.first(limit)
        return cls(records, path, file.notes + note_on_thoughts(records))

    def __len__(self) -> int:
        return len(self.records)

    @property
    def responses(self) -> int:
        """The number of responses of all cases."""
        return int(self.start[-1])

    @cached_property
    def clusters(self) -> ndarray:
        """The number of each case's cluster: int [cases]."""
        return clusters_of(self.records)

    @cached_property
    def cluster_of(self) -> ndarray:
        """The number of the cluster of each response's case: int [responses]."""
        return self.clusters[self.panel.case]

    @cached_property
    def models(self) -> list[str]:
        """The names of the candidates, in the order of their first response in the file."""
        models = (self.records[number].models for number in self.file_order)
        return each_once(models)

    @cached_property
    def model_of(self) -> ndarray:
        """The number of each response's model in `models`: int [responses]."""
        numbers = {name: number for number, name in enumerate(self.models)}
        models = chain.from_iterable(case.models for case in self.records)
        return np.array([numbers[name] for name in models])

    @cached_property
    def kind_of_pair(self) -> ndarray:
        """The two models of each pair, in whatever order, as one number: their numbers, the lower one times all models."""
        first, second = self.panel.pairs
        low, high = np.sort([self.model_of[first], self.model_of[second]], axis=0)
        return low * len(self.models) + high

    def by_model(self, which: ndarray) -> Iterator[tuple[str, ndarray]]:
        """Yield every model with some of these responses, bool [responses], and the numbers of its own, ascending."""
        for number, model in enumerate(self.models):
            of_model = np.flatnonzero(which & (self.model_of == number))
            if len(of_model):
                yield model, of_model

    @cached_property
    def empty(self) -> ndarray:
        """Whether each response is empty: bool [responses]."""
        responses = chain.from_iterable(case.responses for case in self.records)
        return np.array([response.is_empty for response in responses], bool)

    @cached_property
    def longer(self) -> ndarray:
        """The relations of all pairs by their words: float [pairs], NaN where a text is empty."""
        return self.panel.relations(only(longer_text(self.records), ~self.empty))

    @cached_property
    def items(self) -> list[tuple[int, CaseCriterion]]:
        """Every response with every criterion of its case: (number of the response, criterion)."""
        items: list[tuple[int, CaseCriterion]] = []
        for response, case in enumerate(self.panel.case.tolist()):
            items += ((response, criterion) for criterion in self.records[case].criteria)
        return items

    @cached_property
    def response_of(self) -> ndarray:
        """The number of the response of each item: int [items], ascending."""
        return np.array([response for response, _ in self.items], int)

    @property
    def case_of_item(self) -> ndarray:
        """The number of the case of each item: int [items]."""
        return self.panel.case[self.response_of]

    @cached_property
    def points(self) -> ndarray:
        """The points of the criterion of each item: float [items]."""
        return np.array([criterion.points for _, criterion in self.items], float)

    def checklist_scores(self, met: ndarray) -> Score:
        """Return the scores of the responses, by whether each criterion of theirs is met: float [items]; see `Score`."""
        return checklist_scores(self.points, met, self.response_of, self.responses)

    @cached_property
    def first_item(self) -> ndarray:
        """The number of each response's first item, and that of all items: int [responses + 1]."""
        return np.searchsorted(self.response_of, np.arange(self.responses + 1))

    @cached_property
    def pair_index(self) -> dict[tuple[int, int], int]:
        """(first response, second response) → number of the pair."""
        pairs = zip(*np.array(self.panel.pairs).tolist())
        return {pair: number for number, pair in enumerate(pairs)}

    def case(self, case_id: str) -> Case:
        """Return the case of this id."""
        return self.records[self.index[case_id]]

    def locate(self, case_id: str, model: str, place: str = "") -> int:
        """Return the number of a model's response to a case; RecordError, with the place in front, if there is none."""
        number = self.index[case_id]
        models = self.records[number].models
        if model not in models:
            raise RecordError(f"{place}: case {case_id!r} has no response of {model[:80]!r}")
        return int(self.start[number]) + models.index(model)

    def vote(
        self, case_id: str, pair: Sequence[str], choice: str, place: str = ""
    ) -> tuple[int, int]:
        """Return the number of a pair of models, and the index in CHOICES of a choice about it; see `locate`."""
        models = {self.locate(case_id, model, place): model for model in pair}
        first, second = sorted(models)
        code = (models[first], models[second], *CHOICES[2:]).index(choice)
        return self.pair_index[first, second], code

    def at(self, response: int) -> tuple[Case, Response]:
        """Return the case of a response, and the response, by its number."""
        case = self.panel.case[response]
        return self.records[case], self.records[case].responses[response - self.start[case]]

    def known(
        self, placed: Iterable[PlacedRecord], source: object, what: str, notes: list[str]
    ) -> Iterator[PlacedRecord]:
        """Yield the ("file:line", record) that are about these cases; at the end note how many were left out.

        So are ratings with an `answer_digest` that is not that of the answer: of another text; and
        those of an answer that the case lacks, by a model that answers other cases.
        RecordError if none is left. `what` is a word and its preposition, as "rating of".
        """
        others = Counter[str]()
        has_some = False
        for place, record in placed:
            rated = getattr(record, "extra", {}).get("answer_digest")
            is_ours = record.case_id in self.index
            if is_ours:
                models = self.case(record.case_id).models
                about = (
                    record.pair if isinstance(record, Choice) else [getattr(record, "model", None)]
                )
                is_ours = all(model in models or model not in self.models for model in about)
            if rated and is_ours:
                answer = self.locate(record.case_id, record.model, place)
                # Earlier exports have the digits alone.
                is_ours = answer_digest(*self.at(answer)).endswith(str(rated))
            if not is_ours:
                others[record.case_id] += 1
            else:
                has_some = True
                yield place, record
        if not has_some:
            why = f"its ids are others, as {list(others)[:1]}, and not {self.records[0].id!r}"
            if not others:
                why = "it has none"
            elif self.index.keys() & others:
                why = "ids agree, and texts differ or are missing"
            raise RecordError(f"{source}: no {what} any case in {self.source}, as it is now: {why}")
        if others:
            notes.append(
                f"{source}: {what.split()[0]}s: {others.total()} left out, of {len(others)} cases that are "
                f"not among these {len(self)}, lack the answer or have other texts, for example {next(iter(others))!r}"
            )
