"""Publish a data set, a judge or the metric on the Hub, with its card: private unless --public true says otherwise.

    python recipes/publish.py dataset instructions/sample --repo ORG/NAME --dry_run
    python recipes/publish.py model checkpoints/sample-round1 --repo ORG/NAME --agreement reports/sample/agreement.json \
      --judge introspection1 --base_model HuggingFaceTB/SmolLM2-135M-Instruct --datasets ORG/DATASET
    python recipes/publish.py metric --repo ORG/rationale_score --public true

Every check is made before anything is sent. One commit holds the whole push, so that a reader sees all of it or what was there
before; the same command finishes a push that was cut off. The token is that of `hf auth login`, or HF_TOKEN's.
"""

import re
import sys
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id

import automedeval
from automedeval.arguments import parse, run
from automedeval.hub_card import CARD, DATASET, KINDS, METRIC, MODEL, read_text
from automedeval.publishing import Parcel, pack
from automedeval.records import RecordError

METRIC_FOLDER = Path(automedeval.__file__).parent / "metrics" / "rationale_score"
KEPT = {".gitattributes"}  # the Hub's own file
REPO_TYPES = {MODEL: "model", DATASET: "dataset", METRIC: "space"}
# What the Hub's errors mean for the one who pushes.
ADVICE = {
    400: "the Hub does not take it",
    401: "the Hub does not know this token; log in again with `hf auth login`",
    402: "the Hub asks for payment",
    403: "this token may not write there; take one with write access to the organisation",
    404: "not found, or not to be seen with this token",
    409: "somebody else is changing it; the same command tries again",
    412: "somebody else has pushed in the meantime; the same command starts from what is there now",
    413: "a file is too large for the Hub",
    429: "too many requests; wait, and the same command goes on",
}


@dataclass
class PublishArguments:
    """What goes where."""

    kind: str = field(metadata={"help": "dataset, model or metric; may stand first, without --kind", "choices": KINDS})
    repo: str = field(metadata={"help": "ORG/NAME on the Hub; it is made if it is not there"})
    folder: str | None = field(
        default=None, metadata={"help": "what is published; may stand second (default, metric: the packaged one)"}
    )
    public: bool = field(default=False, metadata={"help": "let everybody read it"})
    dry_run: bool = field(default=False, metadata={"help": "list every file with its size, and send nothing"})
    prune: bool = field(
        default=False, metadata={"help": "in the same commit, remove what is there and no longer in the folder"}
    )
    annotators_are_pseudonyms: bool = field(
        default=False, metadata={"help": "files that hold annotators' names may go out: they are nobody's names"}
    )
    message: str | None = field(default=None, metadata={"help": "of the commit"})


@dataclass
class CardArguments:
    """Model: what its card says beside what training left in the folder."""

    card: str = field(default="model_card.md", metadata={"help": "model: the hand-written card, with markers"})
    card_output: str | None = field(default=None, metadata={"help": "model: also write the filled card here"})
    agreement: str | None = field(default=None, metadata={"help": "model: agreement.json of recipes/meta_evaluate.py"})
    judge: str | None = field(default=None, metadata={"help": "model: its name in agreement.json"})
    audit: str | None = field(
        default=None, metadata={"help": "model: audit.json; without it the card says: not audited"}
    )
    base_model: str | None = field(default=None, metadata={"help": "model: Hub id of what training started from"})
    datasets: list[str] = field(default_factory=list, metadata={"help": "model: Hub ids of what it was trained on"})
    rubric: str | None = field(
        default=None, metadata={"help": "model: its rubric's .yaml, unless it is a packaged one"}
    )
    channel: bool = field(default=False, metadata={"help": "model: it is a channel judge"})
    watts: float | None = field(
        default=None, metadata={"help": "model: what the training machine draws, for the energy of the logged hours"}
    )


def main() -> None:
    """Check everything, list it, push it in one commit, and look whether it is there."""
    args, about = parse((PublishArguments, CardArguments), __doc__, positional(sys.argv[1:]))
    check_arguments(args, about)
    parcel = parcel_of(args, about)
    for warning in parcel.warnings:
        print(f"warning: {warning}")
    for path, size in parcel.sizes.items():
        print(f"{size:>15,}  {path}")
    left_out = f"; left out: {', '.join(parcel.left_out)}" if parcel.left_out else ""
    print(f"{counted(parcel.files)}, {sum(parcel.sizes.values()):,} bytes{left_out}")
    if args.dry_run:
        print("nothing was sent")
        return
    if get_token() is None:
        raise RecordError("no token of the Hub; log in with `hf auth login`, or set HF_TOKEN")
    try:
        with warnings.catch_warnings(action="ignore"):  # the client's, on what is checked here
            commit, url = push(HfApi(library_name="automedeval"), args, parcel)
    except (RecordError, KeyboardInterrupt):
        raise
    except Exception as error:  # noqa: BLE001  the client raises a dozen kinds, its transport as many
        raise RecordError(f"{args.repo}: not pushed: {reason(error)}") from None
    print(f"pushed {url} at {commit}")


def positional(words: Sequence[str]) -> list[str]:
    """Return a command line whose first words, if they are no options, stand behind the options that they are short for."""
    found = []
    for option, word in zip(("--kind", "--folder"), words):
        if word.startswith("-"):
            break
        found += [option, word]
    return [*found, *words[len(found) // 2 :]]


def check_arguments(args: PublishArguments, about: CardArguments) -> None:
    """Raise RecordError for what does not go together, or a name that the Hub would not take."""
    try:
        validate_repo_id(args.repo)
    except HFValidationError as error:
        raise RecordError(f"--repo: {' '.join(str(error).split())}") from None
    if args.repo.count("/") != 1:
        raise RecordError(f"--repo must be ORG/NAME, not {args.repo!r}")
    about.datasets = [name.strip() for given in about.datasets for name in given.split(",") if name.strip()]
    if args.kind != MODEL:
        for name, value in vars(CardArguments()).items():
            if getattr(about, name) != value:
                raise RecordError(f"--{name} belongs to a model, not to a {args.kind}")
    if about.watts is not None and not about.watts > 0:
        raise RecordError(f"--watts must be above 0, not {about.watts}")
    if args.folder is None:
        if args.kind != METRIC:
            raise RecordError(f"which {args.kind}? `python recipes/publish.py {args.kind} FOLDER --repo ORG/NAME`")
        args.folder = str(METRIC_FOLDER)


def parcel_of(args: PublishArguments, about: CardArguments) -> Parcel:
    """Return what goes out, its card filled."""
    folder, card, extra = Path(args.folder), None, {}
    if args.kind == MODEL:
        card = filled_card(folder, args.repo, about)
        extra = {"rubric.yaml": Path(about.rubric)} if about.rubric else {}
    elif (folder / CARD).is_file():  # its example names the folder that it was made in
        example = r'(load_dataset|evaluate\.load)\("[^"\n]*"\)'
        card = re.sub(example, rf'\1("{args.repo}")', read_text(folder / CARD))
    module = args.repo.split("/")[1] + ".py"
    if args.kind == METRIC and folder.is_dir() and not (folder / module).is_file():
        raise RecordError(f"--repo {args.repo}: evaluate.load would look for {module} there, and {folder} has none")
    return pack(folder, args.kind, card, args.public, args.annotators_are_pseudonyms, extra)


def filled_card(folder: Path, repo: str, about: CardArguments) -> str:
    """Return the model's card, with what training and measuring left written in."""
    from automedeval.model_card import Told, fill_card, read_result  # loads what draws reports

    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder")
    result = read_result(about.agreement) if about.agreement else None
    audit = read_result(about.audit) if about.audit else None
    told = {name: getattr(about, name) for name in ("base_model", "judge", "rubric", "channel", "watts")}
    card = fill_card(
        read_text(Path(about.card)), folder, Told(repo, datasets=tuple(about.datasets), **told), result, audit
    )
    if about.card_output:
        Path(about.card_output).write_text(card, encoding="utf-8")
    return card


def push(api: HfApi, args: PublishArguments, parcel: Parcel) -> tuple[str, str]:
    """Push in one commit on top of what is there; return the commit, as the Hub named it, and the address.

    Raises:
        RecordError: the repository is public and the push is not meant to be, or it holds files that the folder has not; or
            what is there afterwards is not what was sent.
    """
    where: dict[str, Any] = {"repo_id": args.repo, "repo_type": REPO_TYPES[args.kind]}
    try:
        info = api.repo_info(**where)
    except RepositoryNotFoundError:  # made private, and opened when all is there
        api.create_repo(**where, private=True, space_sdk="gradio" if args.kind == METRIC else None)
        info = api.repo_info(**where)
    if not info.private and not args.public:
        raise RecordError(f"{args.repo}: is public; --public true pushes there, another --repo keeps it private")
    there = files_there(api, where, info.sha)
    stale = sorted(there.keys() - parcel.files.keys() - KEPT)
    if stale and not args.prune:
        named = ", ".join(stale[:5]) + (", …" if len(stale) > 5 else "")
        raise RecordError(
            f"{args.repo}: holds {counted(stale)} that {args.folder} does not: {named}; "
            "--prune true removes them in the same commit"
        )
    adds = [CommitOperationAdd(path, file) for path, file in parcel.files.items()]
    removals = [CommitOperationDelete(path) for path in stale]
    message = args.message or f"Publish {args.kind} with AutoMedEval {automedeval.__version__}"
    # On the parent that was looked at: if somebody pushes meanwhile, the Hub refuses, and neither push is half lost.
    done = api.create_commit(**where, operations=[*adds, *removals], commit_message=message, parent_commit=info.sha)
    check_there(files_there(api, where, done.oid), parcel, adds, args.repo)
    if args.public and info.private:
        api.update_repo_settings(**where, private=False)
    kind = constants.REPO_TYPES_URL_PREFIXES.get(where["repo_type"], "")
    return done.oid, f"{api.endpoint}/{kind}{args.repo}"


def files_there(api: HfApi, where: dict[str, Any], revision: str) -> dict[str, RepoFile]:
    """Return the files of a revision."""
    tree = api.list_repo_tree(**where, revision=revision, recursive=True)
    return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


def check_there(there: dict[str, RepoFile], parcel: Parcel, adds: Sequence[CommitOperationAdd], repo: str) -> None:
    """Raise RecordError unless a revision holds what was sent: every file with its size, large ones with their SHA-256."""
    found = {path: entry.size for path, entry in there.items() if path not in KEPT}
    wrong = sorted({path for path, _ in found.items() ^ parcel.sizes.items()} - KEPT)
    digests = {each.path_in_repo: each.upload_info.sha256.hex() for each in adds}
    wrong += [path for path, entry in there.items() if entry.lfs and entry.lfs.sha256 != digests.get(path)]
    if wrong:
        raise RecordError(f"{repo}: the Hub took the commit, and does not hold what was sent: {', '.join(wrong[:5])}")


def counted(files: Collection[str]) -> str:
    """Return how many files these are, in words."""
    return f"{len(files):,} file{'' if len(files) == 1 else 's'}"


def reason(error: BaseException) -> str:
    """Say in a line why a push failed: what the Hub's status means, or what the connection did."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for each in reversed(chain):
        status = getattr(getattr(each, "response", None), "status_code", None)
        if status is not None:
            failed = "the Hub has failed; the same command goes on" if status >= 500 else "the Hub refuses"
            return f"{ADVICE.get(status, failed)} ({status})"
    text = " ".join(str(chain[-1]).split())[:200] or type(chain[-1]).__name__
    return f"{text}; the same command goes on from what has arrived"


if __name__ == "__main__":
    run(main)
