"""The arguments that choose the knowledge store which a model may ask."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from automedeval.records import RecordError


@dataclass
class KnowledgeArguments:
    """The books that a model may ask before it answers."""

    knowledge: str = field(
        default="chain",
        metadata={"help": "chain: the model may ask the store; none: it may not", "choices": ["chain", "none"]},
    )
    store: str | None = field(default=None, metadata={"help": "folder of the knowledge store"})
    qdrant_url: str | None = field(default=None, metadata={"help": "a Qdrant server in the store's place"})
    collection: str = field(default="knowledge", metadata={"help": "the store's collection"})
    encoder: str = field(
        default="models/all-MiniLM-L6-v2", metadata={"help": "checkpoint that the store was built with"}
    )
    questions: int = field(default=3, metadata={"help": "most rounds of questions"})  # Paper: Algorithm 1's T
    passages: int = field(default=3, metadata={"help": "passages that answer a question"})

    def __post_init__(self) -> None:
        for name in ("questions", "passages"):
            if getattr(self, name) < 1:
                raise RecordError(f"--{name} must be at least 1, not {getattr(self, name)}")

    def check(self) -> None:
        """Raise RecordError if there are to be books and nothing says where."""
        if self.knowledge == "chain" and not (self.store or self.qdrant_url):
            raise RecordError(
                "--store names no folder (recipes/build_store.py builds one; --knowledge none goes without)"
            )

    def open(self, device: str, opened: ExitStack) -> tuple[Any, str]:
        """Return a search, which is closed with `opened`, and the fingerprint of what it searches; (None, "") without books.

        Raises:
            RecordError: no store is named, or it cannot be opened.
        """
        self.check()
        if self.knowledge == "none":
            return None, ""
        from automedeval.distillation.store import (
            KnowledgeBase,
            SharedSearch,  # these load heavy libraries, and many runs have no books
        )
        from automedeval.models.embeddings import Encoder

        # In float32 what is found for a question does not depend on which others are looked up with it.
        encoder = Encoder(self.encoder, device=device, dtype="float32")
        base = opened.enter_context(KnowledgeBase(self.store, encoder, self.qdrant_url, self.collection))
        if base.advice:
            print(base.advice, file=sys.stderr)
        fingerprint = f"{encoder.fingerprint}:{self.collection}:{len(base)}:{self.passages}"
        return SharedSearch(base.search, self.passages), fingerprint
