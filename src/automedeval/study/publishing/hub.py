"""Push to the Hub in one commit; fail if the repository changed meanwhile, or would change its visibility."""

from collections.abc import Mapping
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi

from automedeval.records import JsonObject, RecordError
from automedeval.study.publishing.paths import Content

OF_THE_HUB = {".gitattributes"}  # its own file


def push(
    api: HfApi, contents: Mapping[str, Content], kind: str, repo: str, message: str, public: bool
) -> str:
    """Push files in one commit to ORG/NAME, which is created if it does not exist; return the commit's address.

    RecordError: the repository is public and `public` is false, or private and `public` true; or it holds other files.
    """
    where: JsonObject = {"repo_id": repo, "repo_type": kind}
    if not api.repo_exists(**where):
        api.create_repo(**where, private=not public)
    info: Any = api.repo_info(**where)
    if info.private == public:
        # Opening it on the Hub would also show its earlier commits, branches and pull requests.
        how = "private; publish" if public else "public; --public true pushes there, or publish"
        raise RecordError(f"{repo}: is {how} to a new one, another --repo")
    there = {file.rfilename for file in info.siblings}
    if stale := sorted(there - contents.keys() - OF_THE_HUB):
        how = "remove it there by `hf repo-files delete`, or use another --repo"
        raise RecordError(f"{repo}: holds what is not published: {', '.join(stale[:5])}; {how}")
    adds = [CommitOperationAdd(path, content) for path, content in contents.items()]
    try:
        # `upload_folder` makes several commits; with the parent commit, the Hub refuses a push after somebody else's.
        commit = api.create_commit(
            **where, operations=adds, commit_message=message, parent_commit=info.sha
        )
    except RuntimeError as error:  # of one file, for the reason that is its cause
        raise error.__cause__ or error from None
    return commit.commit_url
