"""The arguments that choose the knowledge store in which a model may look things up."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from automedeval.records import RecordError, check_least


@dataclass
class KnowledgeArguments:
    """The knowledge store that a model may ask questions before it answers."""

    knowledge: str = field(
        default="chain",
        metadata={
            "help": "chain: the model may ask questions to the store; none: it may not",
            "choices": ["chain", "none"],
        },
    )
    store: str | None = field(default=None, metadata={"help": "folder of the knowledge store"})
    qdrant_url: str | None = field(default=None, metadata={"help": "a Qdrant server, in place of --store"})
    collection: str = field(default="knowledge", metadata={"help": "the store's collection"})
    encoder: str = field(
        default="models/all-MiniLM-L6-v2", metadata={"help": "the encoder that the store was built with"}
    )
    encoder_pooling: str | None = field(
        default=None,
        metadata={
            "help": "the pooling that the store was built with, if one was given",
            "choices": ["cls", "mean", "pooler"],
        },
    )
    questions: int = field(
        default=3, metadata={"help": "largest number of rounds of questions"}
    )  # Paper: Algorithm 1's T
    passages: int = field(default=3, metadata={"help": "passages returned for a question"})
    search: str = field(
        default="dense",
        metadata={
            "help": "how passages are found: dense by meaning, bm25 by words",
            "choices": ["dense", "bm25"],
        },
    )

    def __post_init__(self) -> None:
        check_least(self, 1, "questions", "passages")

    def check(self) -> None:
        """Raise RecordError if knowledge is wanted and no store is named."""
        if self.knowledge == "chain" and not (self.store or self.qdrant_url):
            raise RecordError(
                "--store names no folder (recipes/build_store.py builds one; --knowledge none needs none)"
            )

    def open(self, device: str, opened: ExitStack) -> tuple[Any, str]:
        """Return a search and the fingerprint of the store; (None, "") with `--knowledge none`.

        Args:
            device: where the encoder runs.
            opened: closes the store when it is closed.

        Raises:
            RecordError: no store is named, or it cannot be opened.
        """
        self.check()
        if self.knowledge == "none":
            return None, ""
        # Imported here: they load heavy libraries, and many runs use no knowledge.
        from automedeval.distillation.store import KnowledgeBase, SharedSearch
        from automedeval.models.embeddings import Encoder

        # In float32 the passages found for a question do not depend on the other questions of the batch.
        encoder = Encoder(self.encoder, device=device, dtype="float32", pooling=self.encoder_pooling)
        base = opened.enter_context(KnowledgeBase(self.store, encoder, self.qdrant_url, self.collection))
        if base.advice:
            print(base.advice, file=sys.stderr)
        fingerprint = f"{encoder.fingerprint}:{self.collection}:{len(base)}:{self.passages}:{self.search}"
        return SharedSearch(partial(base.search, mode=self.search), self.passages), fingerprint
