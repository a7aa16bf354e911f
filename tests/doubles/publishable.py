"""Things to publish: a trained tiny judge with its record, and results on the sample."""

import runpy
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet
from factories import Json, verdict_of, write, write_json
from programs import ROOT, SAMPLE, run_recipe, succeeded
from tables import rows_of

from automedeval.models.checkpoints import Stage
from automedeval.records.tables.cases import read_cases
from automedeval.records.templates import write_readme
from automedeval.rubrics.published import files_to_publish
from automedeval.study.publishing.checks import CARD, check, contents_of
from automedeval.study.publishing.paths import read_bytes

# Of a training, as recipes/sft.py writes it.
RECORD: Json = rows_of(str(ROOT / "tests/publishing/test_model_card.py"))["record"]
ABOUT = ("--license", "apache-2.0", "--base_model", "some-org/base")


def stage_of(split: str, dataset: str = "instructions/tiny") -> Stage:
    return Stage((split,), dataset, "abcdef012345", rows=12, tokens=3400, trained=560, epochs=2)


def trained(model: Path, folder: Path, **changes: Any) -> Path:
    """Copy a checkpoint, as recipes/sft.py would leave it after a stage; return its folder."""
    shutil.copytree(model, folder)
    record = RECORD | {"history": [vars(stage_of("stage1"))], "finished": True} | changes
    (folder / "training").mkdir()
    write_json(folder / "training/record.json", record)
    write_readme(folder, "automedeval.study.training", "checkpoint_card.md.jinja", record)
    return folder


def with_rubric(folder: Path, name: str) -> Path:
    """Put the files of a rubric that go out with a checkpoint into its folder; return it."""
    (folder / "rubric").mkdir()
    for path, content in files_to_publish(name, "0.1.0").items():
        (folder / path).write_bytes(content)
    return folder


def written_of(folder: Path, **about: str | None) -> dict[str, bytes]:
    """Return what recipes/publish.py writes for the repository of a checkpoint."""
    recipe = runpy.run_path(str(ROOT / "recipes/publish.py"))
    args = recipe["PublishArguments"]("model", "org/judge", str(folder))
    more = {"license": "apache-2.0", "base_model": "some-org/base"} | about
    return recipe["written"](folder, args, recipe["CardArguments"](**more))


def card_of(folder: Path, **about: str | None) -> str:
    """Return the card that recipes/publish.py sends with a checkpoint."""
    return written_of(folder, **about)["README.md"].decode()


def packed(folder: Path, kind: str, card: str | None = None, **options: bool) -> dict[str, int]:
    """Check what is published of a folder; return the sizes of the files by their path."""
    contents, _ = contents_of(folder, {} if card is None else {CARD: card.encode()})
    check(contents, kind, folder, **options)
    return {path: len(read_bytes(content)) for path, content in contents.items()}


def sharded(model: Path, folder: Path) -> Path:
    """Save a checkpoint in several weight files; return its folder."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    return folder


def set_column(file: Path, name: str, values: list[Any]) -> None:
    """Write other values into a column of a parquet file; a column that is not there is added."""
    table = pyarrow.parquet.read_table(file)
    rest = table.drop_columns([name] if name in table.column_names else [])
    pyarrow.parquet.write_table(
        rest.append_column(name, pyarrow.array(values, pyarrow.string())), file
    )


def agreement(
    folder: Path, judges: tuple[str, ...] = ("tiny",), weights: str | None = None
) -> Path:
    """Run `automedeval report` on made-up verdicts of some weights; return its agreement.json."""
    places = [folder / f"{judge}.jsonl" for judge in judges]
    for judge, place in zip(judges, places):
        verdicts = []
        for number, case in enumerate(read_cases(SAMPLE / "test_cases.jsonl")):
            scores = [1 + (number + slot) % 5 for slot in range(len(case.responses))]
            about = {"settings": "5e771265abcd", "rationale": None, "checkpoint": weights}
            verdicts.append(verdict_of(case, scores, judge, **about))
        write(place, verdicts)
    files = {"cases": SAMPLE / "test_cases.jsonl", "ratings": SAMPLE / "test_ratings.jsonl"}
    options = {"resamples": 100, "encoder": "none", "output": folder}
    succeeded(run_recipe("report", verdicts=places, **files, **options))
    return folder / "agreement.json"
