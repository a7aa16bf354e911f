"""Fit topics to questions and references by latent Dirichlet allocation (paper Appendix A, Fig. 7)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from automedeval.records import Case, question_text

# Paper: six groups of topics are named: disease, medicine, diagnostics, treatment, prevention measures, medical books.
TOPICS = 6


@dataclass(frozen=True)
class Topic:
    """One topic: its most probable words and its share of the text, 0 to 1."""

    words: tuple[str, ...]
    share: float

    def to_dict(self) -> dict[str, Any]:
        return {"words": list(self.words), "share": round(self.share, 4)}


def topics(cases: Iterable[Case], number: int = TOPICS, seed: int = 0, words: int = 10) -> list[Topic]:
    """Fit topics to the cases' questions and references; the largest comes first.

    Memory grows with the cases: pass a sample if there are many. The same cases in the same order and seed give the same
    topics. There are fewer than `number` topics, or none, if there are not enough cases or words; `words` is the number of top
    words of each.
    """
    from sklearn.decomposition import LatentDirichletAllocation  # slow to import
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [f"{question_text(case.question)}\n{case.reference or ''}" for case in cases]
    # Words of three letters or more that occur in at most half of the cases.
    least = 1 if len(texts) < 50 else 2 if len(texts) < 1000 else 5
    counter = CountVectorizer(
        stop_words="english", token_pattern=r"(?u)\b[^\W\d_]{3,}\b", min_df=least, max_df=0.5, max_features=5000
    )
    if len(texts) < 2 * number:
        return []
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # scikit-learn raises it if no word is left
        return []
    few = len(texts) < 1000
    model = LatentDirichletAllocation(
        number,
        doc_topic_prior=0.1,  # a short text is about one thing or two
        topic_word_prior=0.01,
        learning_method="batch" if few else "online",
        batch_size=256,
        max_iter=50 if few else 5,
        random_state=seed,
    )
    weights = model.fit_transform(counts)
    shares = np.ravel(counts.sum(axis=1)) @ weights / counts.sum()
    names = counter.get_feature_names_out()
    fitted = []
    for share, row in zip(shares.tolist(), model.components_):
        top = sorted(range(len(names)), key=lambda at: (-row[at], names[at]))[:words]
        fitted.append(Topic(tuple(str(names[at]) for at in top), share))
    return sorted(fitted, key=lambda topic: (-topic.share, topic.words))
