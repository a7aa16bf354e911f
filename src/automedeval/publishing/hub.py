"""Push to the Hub in one commit; fail if the repository changed meanwhile, or would change its visibility."""

from collections.abc import Collection
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id

from automedeval.publishing.cards import DATASET, METRIC, MODEL, PAGE
from automedeval.publishing.checks import Parcel
from automedeval.records import RecordError

KEPT = {".gitattributes"}  # the Hub's own file
REPO_TYPES = {MODEL: "model", DATASET: "dataset", METRIC: "space", PAGE: "space"}
SPACES = {METRIC: "static", PAGE: "docker"}  # what runs a Space
# Explanations of the Hub's HTTP errors.
ADVICE = {
    401: "the Hub does not know this token; log in again with `hf auth login`",
    403: "this token may not write there; take one with write access to the organisation",
    404: "not found, or not visible with this token",
    409: "somebody else is changing it; run the same command again",
    412: "somebody else has pushed meanwhile; run the same command again",
    429: "too many requests; wait, then run the same command again",
}


def check_name(repo: str) -> None:
    """Raise RecordError unless the Hub accepts a repository's name."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise RecordError(f"--repo: {' '.join(str(error).split())}") from None
    if repo.count("/") != 1:
        raise RecordError(f"--repo must be ORG/NAME, not {repo!r}")


def push(
    api: HfApi, parcel: Parcel, repo: str, message: str, public: bool = False, prune: bool = False
) -> tuple[str, str]:
    """Push in one commit; return the commit's id and the repository's address.

    Args:
        repo: ORG/NAME; created if it does not exist.
        public: whether the repository is to be public.
        prune: whether to remove, in the same commit, files of the repository that are not in the parcel.

    Raises:
        RecordError: the repository is public and `public` is false, or private and `public` true; or it holds other files and
            `prune` is false.
    """
    where: dict[str, Any] = {"repo_id": repo, "repo_type": REPO_TYPES[parcel.kind]}
    try:
        info = api.repo_info(**where)
    except RepositoryNotFoundError:
        api.create_repo(**where, private=not public, space_sdk=SPACES.get(parcel.kind))
        info = api.repo_info(**where)
    if not info.private and not public:
        raise RecordError(f"{repo}: is public; --public true pushes there, another --repo keeps it private")
    if info.private and public:
        raise RecordError(
            f"{repo}: is private; publish to a new one: another --repo. Opening it on the Hub would also show its earlier "
            "commits, branches and pull requests"
        )
    tree = api.list_repo_tree(**where, revision=info.sha, recursive=True)
    there = {entry.path for entry in tree if isinstance(entry, RepoFile)}
    stale = sorted(there - parcel.files.keys() - KEPT)
    if stale and not prune:
        named = ", ".join(stale[:5]) + (", …" if len(stale) > 5 else "")
        raise RecordError(
            f"{repo}: holds {counted(stale)} that {parcel.source} does not: {named}; "
            "--prune true removes them in the same commit"
        )
    adds = [CommitOperationAdd(path, file) for path, file in parcel.files.items()]
    removals = [CommitOperationDelete(path) for path in stale]
    # With the parent commit: if somebody pushes meanwhile, the Hub refuses this push.
    done = api.create_commit(**where, operations=[*adds, *removals], commit_message=message, parent_commit=info.sha)
    kind = constants.REPO_TYPES_URL_PREFIXES.get(where["repo_type"], "")
    return done.oid, f"{api.endpoint}/{kind}{repo}"


def counted(files: Collection[str]) -> str:
    """Return the number of files, in words."""
    return f"{len(files):,} file{'' if len(files) == 1 else 's'}"


def reason(error: BaseException) -> str:
    """Return one line about why a push failed, from the HTTP status or the connection's error."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for each in reversed(chain):
        status = getattr(getattr(each, "response", None), "status_code", None)
        if status is not None:
            failed = "the Hub failed; run the same command again" if status >= 500 else "the Hub refuses"
            return f"{ADVICE.get(status, failed)} ({status})"
    text = " ".join(str(chain[-1]).split())[:200] or type(chain[-1]).__name__
    return f"{text}; run the same command again"
