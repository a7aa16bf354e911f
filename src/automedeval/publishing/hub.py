"""Push to the Hub in one commit; fail if the repository changed meanwhile, or would change its visibility."""

import re
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from automedeval.publishing.checks import Parcel
from automedeval.records import RecordError

KEPT = {".gitattributes"}  # the Hub's own file


def push(api: HfApi, parcel: Parcel, repo: str, message: str, public: bool = False) -> str:
    """Push in one commit to ORG/NAME, which is created if it does not exist; return the commit's address.

    RecordError: the repository is public and `public` is false, or private and `public` true; or it holds other files.
    """
    where: dict[str, Any] = {"repo_id": repo, "repo_type": parcel.kind}
    try:
        info = api.repo_info(**where)
    except RepositoryNotFoundError:
        api.create_repo(**where, private=not public)
        info = api.repo_info(**where)
    if not info.private and not public:
        raise RecordError(
            f"{repo}: is public; --public true pushes there, another --repo keeps it private"
        )
    if info.private and public:
        # opening it on the Hub would also show its earlier commits, branches and pull requests
        raise RecordError(f"{repo}: is private; publish to a new one: another --repo")
    there = set(api.list_repo_files(**where, revision=info.sha))
    stale = sorted(there - parcel.files.keys() - KEPT)
    if stale:
        named = ", ".join(stale[:5]) + (", …" if len(stale) > 5 else "")
        how = "remove it there by `hf repo-files delete`, or use another --repo"
        raise RecordError(f"{repo}: holds what {parcel.source} does not: {named}; {how}")
    adds = [CommitOperationAdd(path, file) for path, file in parcel.files.items()]
    # With the parent commit: if somebody pushes meanwhile, the Hub refuses this push.
    done = api.create_commit(
        **where, operations=adds, commit_message=message, parent_commit=info.sha
    )
    return done.commit_url


def reason(error: BaseException) -> str:
    """Return in one line why a push failed, in the words of the Hub or the connection; an address may hold a key behind "?"."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    said = next((each for each in reversed(causes) if isinstance(each, HfHubHTTPError)), causes[-1])
    return re.sub(r"\?\S*", "", " ".join(str(said).split()))[:300] or type(said).__name__
