"""Publish a data set or a judge on the Hub, with its card: private unless --public true says so.

Reads a folder of recipes/build_dataset.py, introspect_revise.py or sft.py and, for a judge's card, agreement.json, audit.json.
Writes one commit of a repository, so that readers see either all of it or the former state.

    python recipes/publish.py dataset instructions/sample --repo ORG/NAME --dry_run
    python recipes/publish.py model checkpoints/sample-round1 --repo ORG/NAME --agreement reports/sample/agreement.json \\
      --base_model HuggingFaceTB/SmolLM2-135M-Instruct --license apache-2.0

All checks come first. The same command completes an interrupted push. The token is that of `hf auth login` or HF_TOKEN.
"""

import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path

from huggingface_hub import HfApi, get_token

import automedeval
from automedeval.records import RecordError, foreign_errors_at, option, read_text
from automedeval.records.command_line import parse, run
from automedeval.records.hub_names import HUB_ID
from automedeval.rubrics.published import PACKAGED, files_to_publish, own_rubric
from automedeval.study.publishing.checks import CARD, KINDS, MODEL, check, contents_of
from automedeval.study.publishing.hub import push

MODEL_CARD = Path(__file__).parents[1] / "model_card.md"  # the card's template


@dataclass
class PublishArguments:
    """What to publish, and where."""

    kind: str = option(f"{', '.join(KINDS)}; or the first argument, without --kind")
    repo: str = option("ORG/NAME on the Hub; created if it does not exist")
    folder: str | None = option("folder of a dataset or model; or the second argument", None)
    public: bool = option("make a public repository; one that is private already is refused", False)
    dry_run: bool = option("list all files with their sizes, and send nothing", False)
    annotators_are_pseudonyms: bool = option(
        "annotators' names in the files are pseudonyms and may go out", False
    )


@dataclass
class CardArguments:
    """Model: content of its card besides the records in the folder."""

    agreement: str | None = option("model: agreement.json of `automedeval report`", None)
    audit: str | None = option("model: audit.json; without it the card says: not audited", None)
    license: str | None = option(
        "model: the Hub's name of its license (apache-2.0, llama2), or other:NAME; required", None
    )
    base_model: str | None = option(
        "model: the model before training, ORG/NAME or ORG/NAME@REVISION on the Hub", None
    )


def main() -> None:
    """Check all files, list them, and push them in one commit."""
    # --- 1. Collect and check what goes out ----------------------------------------------------------------------------------
    args, about = parse((PublishArguments, CardArguments), __doc__, positional(sys.argv[1:]))
    check_arguments(args, about)
    folder = Path(args.folder or "")
    contents, left_out = contents_of(folder, written(folder, args, about))
    check(contents, args.kind, folder, args.public, args.annotators_are_pseudonyms)
    # --- 2. List it ----------------------------------------------------------------------------------------------------------
    sizes = {
        path: len(content) if isinstance(content, bytes) else content.stat().st_size
        for path, content in contents.items()
    }
    for path, size in sizes.items():
        print(f"{size:>15,}  {path}")
    print(f"{len(sizes):,} files, {sum(sizes.values()):,} bytes; {left_out:,} left out")
    if args.dry_run:
        print("dry run: nothing was sent")
        return
    # --- 3. Push it ----------------------------------------------------------------------------------------------------------
    if get_token() is None:
        raise RecordError("no token of the Hub; log in with `hf auth login`, or set HF_TOKEN")
    api = HfApi(library_name="automedeval")
    message = f"Publish {args.kind} with AutoMedEval {automedeval.__version__}"
    with foreign_errors_at(f"{args.repo}: not pushed"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client's, about what is checked here
        print(f"pushed {push(api, contents, args.kind, args.repo, message, args.public)}")


def positional(words: Sequence[str]) -> list[str]:
    """Return a command line with --kind and --folder in front of its first words that are not options."""
    named = list(takewhile(lambda word: not word.startswith("-"), words[:2]))
    options = chain.from_iterable(zip(("--kind", "--folder"), named))
    return [*options, *words[len(named) :]]


def check_arguments(args: PublishArguments, about: CardArguments) -> None:
    """Raise RecordError for arguments that contradict each other, or a name that the Hub refuses."""
    if not HUB_ID.fullmatch(args.repo):
        raise RecordError(f"--repo must be ORG/NAME, not {args.repo!r}")
    if args.kind not in KINDS:
        raise RecordError(f"{args.kind!r} is none of {', '.join(KINDS)}")
    if args.kind != MODEL:
        for name, value in vars(about).items():
            if value is not None:
                raise RecordError(f"--{name} belongs to a model, not to a {args.kind}")
    if args.folder is None:
        raise RecordError(
            f"which {args.kind}? `python recipes/publish.py {args.kind} FOLDER --repo ORG/NAME`"
        )
    if not Path(args.folder).is_dir():
        raise RecordError(f"{args.folder}: no such folder")


def written(folder: Path, args: PublishArguments, about: CardArguments) -> dict[str, bytes]:
    """Return what is written for the repository: the card, and a judge's rubric beside its weights."""
    if args.kind == MODEL:
        return about_model(folder, args, about)
    if not (folder / CARD).is_file():
        return {}
    example = f'load_dataset("{args.repo}")'  # in the place of the local folder
    return {CARD: re.sub(r'load_dataset\("[^"\n]*"\)', example, read_text(folder / CARD)).encode()}


def about_model(folder: Path, args: PublishArguments, about: CardArguments) -> dict[str, bytes]:
    """Return a model's card, the rubric beside its weights, and an adapter's configuration with its base on the Hub."""
    from automedeval.models.checkpoints import fingerprint
    from automedeval.study.publishing.model_card import (  # slow
        adapter_files,
        fill_card,
        read_result,
    )

    needed = ("judges", "main_judge", "cases", "settings")
    result = read_result(Path(about.agreement), *needed) if about.agreement else None
    audit = read_result(Path(about.audit), "perturbations", "judge") if about.audit else None
    template, digest = read_text(MODEL_CARD), fingerprint(folder)
    card = fill_card(
        template, folder, digest, args.repo, about.license, about.base_model, result, audit
    )
    files = files_to_publish(own_rubric(folder) or PACKAGED, automedeval.__version__)
    return {CARD: card.encode(), **files, **adapter_files(folder, about.base_model)}


if __name__ == "__main__":
    run(main)
