"""Names on the Hub: ORG/NAME, or ORG/NAME@REVISION for a branch, a tag or a commit of it.

Wherever a checkpoint or a data set is named, its revision can be. The commit that each name stood for when this process read it
is kept, and goes into the record of the run: a branch may stand for another commit tomorrow.
"""

import re
from pathlib import Path
from typing import Any

from automedeval.records.errors import RecordError

HUB_ID = re.compile(r"(?!models/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_commits: dict[str, str] = {}


def hub_name(text: str) -> tuple[str, str | None]:
    """Split ORG/NAME@REVISION into name and revision, None for the main branch; RecordError if nothing follows the @."""
    name, sign, revision = text.partition("@")
    if sign and not (name and revision):
        raise RecordError(
            f"{text}: must be ORG/NAME@REVISION, with a branch, tag or commit behind the @"
        )
    return name, revision or None


def is_hub_dataset(text: str) -> bool:
    """Return whether a text that is no file of this machine names a data set on the Hub."""
    name = text.partition("@")[0]
    return HUB_ID.fullmatch(name) is not None and not Path(name).suffix


def hub_rows(text: str, split: str, streaming: bool) -> Any:
    """Return a split of a data set of the Hub or of a folder; the errors of `datasets` are not caught."""
    import datasets  # slow to import, and most runs read files

    local = Path(text).exists()
    name, revision = (text, None) if local else hub_name(text)
    builder = datasets.load_dataset_builder(name, revision=revision)
    if not local:
        note_commit(text, builder.hash)
    if streaming:
        return builder.as_streaming_dataset(split=split)
    builder.download_and_prepare()
    return builder.as_dataset(split=split)


def note_commit(text: str, commit: str) -> None:
    """Keep the commit that a name on the Hub stands for."""
    _commits[text] = commit


def hub_commits() -> dict[str, str]:
    """Return the commit of each name on the Hub that this process has read, sorted by name."""
    return dict(sorted(_commits.items()))
