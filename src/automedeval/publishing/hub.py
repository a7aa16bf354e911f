"""Push to the Hub in one commit; fail if the repository changed meanwhile, and verify the upload.

A private repository becomes public only if nothing that it ever held differs from what is published.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.sha import git_hash

from automedeval.publishing.cards import CARD, DATASET, METRIC, MODEL, PAGE
from automedeval.publishing.checks import Parcel
from automedeval.records import RecordError

KEPT = {".gitattributes"}  # the Hub's own file
MAIN = "refs/heads/main"
INITIAL = "initial commit"  # the Hub's title of the commit that makes a repository; of a Space, it has a card
REPO_TYPES = {MODEL: "model", DATASET: "dataset", METRIC: "space", PAGE: "space"}
SPACES = {METRIC: "gradio", PAGE: "docker"}  # what runs a Space
# Explanations of the Hub's HTTP errors.
ADVICE = {
    400: "the Hub refuses it",
    401: "the Hub does not know this token; log in again with `hf auth login`",
    402: "the Hub asks for payment",
    403: "this token may not write there; take one with write access to the organisation",
    404: "not found, or not visible with this token",
    409: "somebody else is changing it; run the same command again",
    412: "somebody else has pushed meanwhile; run the same command again",
    413: "a file is too large for the Hub",
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
        repo: ORG/NAME; created as private if it does not exist.
        public: whether the repository is to be public.
        prune: whether to remove, in the same commit, files of the repository that are not in the parcel.

    Raises:
        RecordError: the repository is public and `public` is false; it is private, `public` is true, and its history holds
            something else; it holds other files and `prune` is false; or its files differ afterwards from what was sent.
    """
    where: dict[str, Any] = {"repo_id": repo, "repo_type": REPO_TYPES[parcel.kind]}
    try:
        info = api.repo_info(**where)
    except RepositoryNotFoundError:  # created private, and made public after the upload
        api.create_repo(**where, private=True, space_sdk=SPACES.get(parcel.kind))
        info = api.repo_info(**where)
    if not info.private and not public:
        raise RecordError(f"{repo}: is public; --public true pushes there, another --repo keeps it private")
    there = files_there(api, where, info.sha)
    stale = sorted(there.keys() - parcel.files.keys() - KEPT)
    if stale and not prune:
        named = ", ".join(stale[:5]) + (", …" if len(stale) > 5 else "")
        raise RecordError(
            f"{repo}: holds {counted(stale)} that {parcel.source} does not: {named}; "
            "--prune true removes them in the same commit"
        )
    adds = [CommitOperationAdd(path, file) for path, file in parcel.files.items()]
    if public and info.private:
        check_history(api, where, adds)
    removals = [CommitOperationDelete(path) for path in stale]
    # With the parent commit: if somebody pushes meanwhile, the Hub refuses this push.
    done = api.create_commit(**where, operations=[*adds, *removals], commit_message=message, parent_commit=info.sha)
    check_there(files_there(api, where, done.oid), adds, repo)
    if public and info.private:
        api.update_repo_settings(**where, private=False)
    kind = constants.REPO_TYPES_URL_PREFIXES.get(where["repo_type"], "")
    return done.oid, f"{api.endpoint}/{kind}{repo}"


def files_there(api: HfApi, where: dict[str, Any], revision: str | None) -> dict[str, RepoFile]:
    """Return the files of a revision."""
    tree = api.list_repo_tree(**where, revision=revision, recursive=True)
    return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


def check_history(api: HfApi, where: dict[str, Any], adds: Sequence[CommitOperationAdd]) -> None:
    """Raise RecordError if opening a private repository shows anything but the files that are published.

    Every earlier commit stays readable, and every branch, tag and pull request; squashing a branch does not remove the others.
    A revision that holds the same files, of an earlier push or an interrupted one, shows nothing more.
    """
    repo, advice = where["repo_id"], "becomes public with the repository; publish to a new one: another --repo"
    refs = api.list_repo_refs(**where, include_pull_requests=True)
    every = [each.ref for each in (*refs.branches, *refs.tags, *refs.converts, *(refs.pull_requests or ()))]
    if others := [ref for ref in every if ref != MAIN]:
        named = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
        raise RecordError(f"{repo}: is private and has {named}: what is in there {advice}")
    sent = {add.path_in_repo: add for add in adds}
    commits = api.list_repo_commits(**where)
    for number, commit in enumerate(commits, 1):
        made = number == len(commits) and commit.title == INITIAL
        for path, entry in files_there(api, where, commit.commit_id).items():
            if path not in (KEPT | {CARD} if made else KEPT) and not (path in sent and _same(entry, sent[path])):
                raise RecordError(
                    f"{repo}: is private, and its revision {commit.commit_id[:8]} ({commit.title!r}) holds another {path} than "
                    f"is published now, which {advice}"
                )


def _same(entry: RepoFile, add: CommitOperationAdd) -> bool:
    """Return whether a file on the Hub has the content of one that is sent."""
    if entry.lfs:
        return entry.lfs.sha256 == add.upload_info.sha256.hex()
    with add.as_file() as stream:
        return entry.size == add.upload_info.size and entry.blob_id == git_hash(stream.read())


def check_there(there: Mapping[str, RepoFile], adds: Sequence[CommitOperationAdd], repo: str) -> None:
    """Raise RecordError unless a revision holds exactly the files that were sent."""
    sent = {add.path_in_repo: add for add in adds}
    paths = sorted({*there, *sent} - KEPT)
    wrong = [path for path in paths if not (path in there and path in sent and _same(there[path], sent[path]))]
    if wrong:
        raise RecordError(f"{repo}: after the commit, files on the Hub differ from those sent: {', '.join(wrong[:5])}")


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
