"""Push to the Hub in one commit; fail if the repository changed meanwhile, or would change its visibility."""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError

from automedeval.publishing.checks import sent_files
from automedeval.records import RecordError

KEPT = {".gitattributes"}  # the Hub's own file


def push(api: HfApi, place: Path, kind: str, repo: str, message: str, public: bool = False) -> str:
    """Push a folder in one commit to ORG/NAME, which is created if it does not exist; return the commit's address.

    RecordError: the repository is public and `public` is false, or private and `public` true; or it holds other files.
    """
    where: dict[str, Any] = {"repo_id": repo, "repo_type": kind}
    if not api.repo_exists(**where):
        api.create_repo(**where, private=not public)
    info = api.repo_info(**where)
    if not info.private and not public:
        raise RecordError(
            f"{repo}: is public; --public true pushes there, another --repo keeps it private"
        )
    if info.private and public:
        # opening it on the Hub would also show its earlier commits, branches and pull requests
        raise RecordError(f"{repo}: is private; publish to a new one: another --repo")
    files = sent_files(place)
    there = set(api.list_repo_files(**where, revision=info.sha))
    if stale := sorted(there - files.keys() - KEPT):
        named = ", ".join(stale[:5]) + (", …" if len(stale) > 5 else "")
        how = "remove it there by `hf repo-files delete`, or use another --repo"
        raise RecordError(f"{repo}: holds what is not published: {named}; {how}")
    adds = [CommitOperationAdd(path, file) for path, file in files.items()]
    # `upload_folder` makes several commits; with the parent commit, the Hub refuses a push after somebody else's.
    done = api.create_commit(
        **where, operations=adds, commit_message=message, parent_commit=info.sha
    )
    return done.commit_url


def reason(error: BaseException) -> str:
    """Return in one line why a push failed, in the words of the Hub or the connection; an address may hold a key behind "?"."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    said = next(
        (cause for cause in reversed(causes) if isinstance(cause, HfHubHTTPError)), causes[-1]
    )
    return re.sub(r"\?\S*", "", " ".join(str(said).split()))[:300] or type(said).__name__
