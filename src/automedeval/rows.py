"""The lines of the table of agreement: a judge, one criterion of a pairwise judge, or a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from automedeval.agreement import Panel
from automedeval.cases import Cases
from automedeval.evidence import JudgeEvidence
from automedeval.people import People


@dataclass
class Row:
    """One line of the table: a judge, one criterion of a pairwise judge, or a baseline.

    `scores` and `expected` are float [responses] or None, `relation` [pairs] is given where a judge compares pairs.
    """

    name: str
    evidence: JudgeEvidence
    scores: np.ndarray | None = None
    expected: np.ndarray | None = None
    relation: np.ndarray | None = None
    criterion: str | None = None

    def relations(self, panel: Panel) -> np.ndarray:
        """Return the relations that this judge's own words mean: choices, else scores, else expected scores."""
        if self.relation is not None:
            return self.relation
        values = self.scores if self.scores is not None else self.expected
        return np.full(len(panel.pairs[0]), np.nan) if values is None else panel.relations(values)

    def finest(self, panel: Panel) -> np.ndarray:
        """Return the relations behind the headline: of expected scores where there are any."""
        return self.relations(panel) if self.expected is None else panel.relations(self.expected)

    def rated(self, people: People) -> np.ndarray:
        """Return people's scores of the responses that this judge was asked about, NaN for the others."""
        asked = self.evidence.asked
        return people.scores if asked is None else np.where(asked, people.scores, np.nan)

    def known_relations(self, cases: Cases, people: People) -> np.ndarray:
        """Return people's relations of the pairs that this judge was asked about, float [pairs]."""
        relation, asked = cases.panel.relations(self.rated(people)), self.evidence.asked_pairs
        return relation if asked is None else np.where(asked, relation, np.nan)

    @property
    def headline(self) -> str:
        """The concordance that compares judges which tie with such that do not: from expected scores where there are any."""
        return "concordance_expected" if self.expected is not None else "concordance"


def rows_of(judges: Sequence[JudgeEvidence]) -> list[Row]:
    """Return the lines of the table, a pairwise judge taking one per criterion."""
    rows = []
    for evidence in judges:
        if evidence.relations:
            for criterion, relation in evidence.relations.items():
                rows.append(Row(f"{evidence.name}: {criterion}", evidence, relation=relation, criterion=criterion))
        else:
            scores = None if np.isnan(evidence.scores).all() else evidence.scores
            # Where some verdicts lack them, an endpoint's probabilities say nothing about the judge as a whole.
            lacking = np.isnan(evidence.expected)
            partly = bool((lacking & ~np.isnan(evidence.scores)).any())
            rows.append(Row(evidence.name, evidence, scores, None if partly or lacking.all() else evidence.expected))
    return rows
