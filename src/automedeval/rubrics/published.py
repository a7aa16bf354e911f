"""The rubric that goes out with a judge, so that whoever loads the judge asks in exactly the words that it was published with.

A published checkpoint holds the folder `rubric`:

    rubric.yaml, TEMPLATE    the rubric, also if it is a packaged one: its wording may change in a later version of the package
    published.json           the fingerprints of the rubric and of the prompts that it made

They are not beside the weights, because files there are part of the weights' fingerprint.
"""

import json
from pathlib import Path

from automedeval.models.checkpoints import checkpoint_folder, read_record
from automedeval.records import RecordError, errors_at, read_json
from automedeval.records.types import take
from automedeval.rubrics.prompts import prompt_fingerprint
from automedeval.rubrics.rubric import Rubric, read_rubric, rubric_path, rubrics_with

FOLDER, RUBRIC, RECORD = "rubric", "rubric.yaml", "published.json"
PACKAGED = "automedeval"  # the rubric of a checkpoint that has none of its own


def own_rubric(checkpoint: Path) -> str | None:
    """Return the rubric of a checkpoint: the one in its folder, else the packaged one that it was trained for, else None.

    RecordError if it was trained for another one.
    """
    trained_for = (read_record(checkpoint) or {}).get("rubrics", ())
    beside = checkpoint / FOLDER / RUBRIC
    if beside.is_file():
        if trained_for and (name := read_rubric(beside).name) not in trained_for:
            raise RecordError(f"{beside}: is {name}; it was trained for {', '.join(trained_for)}")
        return str(beside)
    packaged = rubrics_with([])
    if unpackaged := [name for name in trained_for if name not in packaged]:
        how = f"put it there as {FOLDER}/{RUBRIC}, with its template"
        raise RecordError(
            f"{checkpoint}: was trained for the rubric {unpackaged[0]}, which is not packaged: {how}"
        )
    return packaged[trained_for[0]].place if trained_for else None


def files_to_publish(name: str, version: str) -> dict[str, bytes]:
    """Return the folder that goes out with a judge, by path: the rubric, its template, and the record of both."""
    rubric = read_rubric(name)
    record = {
        "automedeval": version,
        "rubric": rubric.name,
        "fingerprint": rubric.fingerprint,
        "prompts": prompt_fingerprint(rubric),
    }
    files = {
        RUBRIC: rubric_path(name)[0].read_bytes(),
        rubric.template: rubric.template_text.encode(),
        RECORD: (json.dumps(record, indent=1) + "\n").encode(),
    }
    return {f"{FOLDER}/{path}": content for path, content in files.items()}


def published_rubric(model: str) -> Rubric | None:
    """Return the rubric that a checkpoint (folder or Hub id) was published with; None for one that was published without.

    RecordError if the rubric, or the prompts that this version makes of it, are not those that it was published with.
    """
    folder = checkpoint_folder(model) / FOLDER
    file = folder / RECORD
    if not file.is_file():
        return None
    record = read_json(file)
    with errors_at(file):
        made, name, fingerprint, prompts = (
            take(record, key, (str,)) for key in ("automedeval", "rubric", "fingerprint", "prompts")
        )
    rubric = read_rubric(folder / RUBRIC)
    if (rubric.name, rubric.fingerprint) != (name, fingerprint):
        raise RecordError(
            f"{folder / RUBRIC}: is {rubric.name}, but the judge was published with {name}: the rubric or its template was "
            "changed"
        )
    if prompt_fingerprint(rubric) != prompts:
        raise RecordError(
            f"{model}: was published with AutoMedEval {made}, and this version makes other prompts of {name}: install that "
            "version to use it"
        )
    return rubric


def rubric_of(model: str, named: Rubric | None) -> Rubric | None:
    """Return the rubric by which a checkpoint judges: the one that is named, else its own; None without both.

    Its own is that of its publication, else `own_rubric`. RecordError as there, and if the named one has the same id as the
    published one, and another version or wording.
    """
    published = published_rubric(model)
    if named is None:
        own = None if published else own_rubric(checkpoint_folder(model))
        return read_rubric(own) if own else published
    if published is None or named.id != published.id or named.fingerprint == published.fingerprint:
        return named
    raise RecordError(
        f"{model}: was published with {published.name}, and the rubric {named.name} has another wording; name no rubric, and "
        "the judge takes its own"
    )
