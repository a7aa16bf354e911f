"""Texts in batches, for an encoder."""

from collections.abc import Iterator, Sequence

# Largest number of tokens of a batch, if each of its texts had those of the longest. A processor is faster with few: what a
# layer computes of them stays in its cache.
BATCH_TOKENS = 8192
BATCH_TOKENS_ON_CPU = 1024


def batches(lengths: Sequence[int], on_cpu: bool) -> Iterator[list[int]]:
    """Yield indices in batches of like lengths in tokens, the longest first: one that is too large fails at once."""
    budget = BATCH_TOKENS_ON_CPU if on_cpu else BATCH_TOKENS
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
