"""The arguments that choose the knowledge store in which a model may look things up."""

from dataclasses import dataclass, field
from functools import partial

from automedeval.records import RecordError, check_least
from automedeval.rubrics.questions import Search


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
    encoder: str = field(
        default="models/all-MiniLM-L6-v2", metadata={"help": "the encoder that the store was built with"}
    )
    questions: int = field(
        default=3, metadata={"help": "largest number of rounds of questions"}
    )  # Paper: Algorithm 1's T
    passages: int = field(default=3, metadata={"help": "passages returned for a question"})

    def __post_init__(self) -> None:
        check_least(self, 1, "questions", "passages")

    def check(self) -> None:
        """Raise RecordError if knowledge is wanted and no store is named."""
        if self.knowledge == "chain" and not self.store:
            raise RecordError(
                "--store names no folder (recipes/build_store.py builds one; --knowledge none needs none)"
            )

    def open(self, device: str) -> tuple[Search | None, str]:
        """Return a search and the fingerprint of the store; (None, "") with `--knowledge none`.

        Args:
            device: where the encoder runs.

        Raises:
            RecordError: no store is named, or it cannot be opened.
        """
        self.check()
        if self.knowledge == "none" or self.store is None:
            return None, ""
        # Imported here: they load heavy libraries, and many runs use no knowledge.
        from automedeval.distillation.store import KnowledgeBase, read_settings
        from automedeval.models.embeddings import Encoder

        # In float32 the passages found for a question do not depend on the other questions of the batch.
        pooling = read_settings(self.store)["pooling"]
        base = KnowledgeBase(self.store, Encoder(self.encoder, device=device, dtype="float32", pooling=pooling))
        fingerprint = f"{base.encoder.fingerprint}:{len(base.passages)}:{self.passages}"
        return partial(base.search, limit=self.passages), fingerprint
