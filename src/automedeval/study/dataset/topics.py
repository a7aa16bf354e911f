"""Fit topics to questions and references by latent Dirichlet allocation (paper Appendix A, Fig. 7)."""

from collections.abc import Iterable

import numpy as np

from automedeval.records import Case, JsonObject, patient_question

# Paper: six groups of topics are named: disease, medicine, diagnostics, treatment, prevention measures, medical books.
TOPICS = 6
WORDS = 10


def topics(cases: Iterable[Case], number: int = TOPICS, seed: int = 0) -> list[JsonObject]:
    """Fit topics to the cases' questions and references; each has its most probable "words" and its "share" of the text.

    The largest comes first. There is none if there are fewer than two cases a topic, or no words of three letters or more that
    occur in half of the cases at most.
    """
    from sklearn.decomposition import LatentDirichletAllocation  # slow to import
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [f"{patient_question(case.question)}\n{case.reference or ''}" for case in cases]
    if len(texts) < 2 * number:
        return []
    words = r"(?u)\b[^\W\d_]{3,}\b"
    counter = CountVectorizer(
        stop_words="english", token_pattern=words, max_df=0.5, max_features=5000
    )
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
        max_iter=20 if few else 5,
        random_state=seed,
    )
    weights = model.fit_transform(counts)
    shares = np.ravel(counts.sum(axis=1)) @ weights / counts.sum()
    names = counter.get_feature_names_out()
    order = np.argsort(-model.components_, axis=1, kind="stable")[:, :WORDS]
    fitted = [
        {"words": names[row].tolist(), "share": round(float(share), 4)}
        for row, share in zip(order, shares)
    ]
    return sorted(fitted, key=lambda topic: (-topic["share"], topic["words"]))
