"""The arguments that choose the knowledge store in which a model may look things up."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from automedeval.models.arguments import EncoderArguments
from automedeval.records import JsonObject, RecordError, check_least, option
from automedeval.rubrics.questions import Search

QDRANT_URL = (
    "the Qdrant server that has the store, under the name of its folder; its key: QDRANT_API_KEY"
)
PASSAGES = 3  # returned for a question


@dataclass
class KnowledgeArguments:
    """The knowledge store that a model may ask questions before it answers."""

    store: str | None = option(
        "folder of the knowledge store that the model may ask; none: it may ask nothing", None
    )
    qdrant_url: str | None = option(QDRANT_URL, None)
    # Paper: Algorithm 1's T.
    questions: int = option("largest number of rounds of questions", 3)

    def __post_init__(self) -> None:
        check_least(self, 1, "questions")

    @property
    def knowledge(self) -> str:
        """Whether the model may ask: "chain" or "none"."""
        return "none" if self.store == "none" else "chain"

    def check(self) -> None:
        """Raise RecordError if no store is named."""
        if not self.store:
            raise RecordError(
                "--store names no folder: recipes/build_store.py builds one; --store none does without"
            )

    def open(self, encoder: EncoderArguments, device: str) -> tuple[Search | None, str]:
        """Return a search and the store's fingerprint; (None, "") with `--store none`.

        `encoder` is the one that the store was built with; it runs on `device`.
        """
        self.check()
        if self.store is None or self.store == "none":
            return None, ""
        # Imported here: it loads heavy libraries, and many runs use no knowledge.
        from automedeval.evidence.store import KnowledgeBase

        base = KnowledgeBase(Path(self.store), partial(encoder.load, device), self.qdrant_url)
        fingerprint = f"{base.encoder.fingerprint}:{base.content}:{PASSAGES}"
        return partial(base.search, limit=PASSAGES), fingerprint


@dataclass(kw_only=True)
class EvidenceArguments:
    """The books beside which a judge reads, or numbers are compared: the base of the arguments of both."""

    evidence: str | None = option(
        "folder of books, by recipes/build_store.py: their nearest passages stand in the prompt of a judge, and numbers "
        "of answers of a kind that the case's reference does not have are compared with them",
        None,
    )

    def books(self, encoder: EncoderArguments, device: str) -> JsonObject:
        """Return `search`, with the encoder that the store was built with, and its fingerprint `store`; {} without books."""
        if not self.evidence:
            return {}
        knowledge = KnowledgeArguments(store=self.evidence)
        return dict(zip(("search", "store"), knowledge.open(encoder, device)))
