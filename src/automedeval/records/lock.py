"""A lock on a file or folder that is being written. The operating system releases it when the process ends, however it ends."""

from pathlib import Path

from filelock import FileLock, Timeout

from automedeval.records.errors import RecordError


def lock(path: Path, doing: str) -> FileLock:
    """Lock a path for this process until `release` of the returned lock, by a file `.NAME.lock` beside it.

    The folder that both lie in is made; the path itself need not exist. `doing` says in errors what the lock's holder does.
    RecordError if another process holds the lock, or the file beside the path cannot be written.
    """
    held = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held.acquire(blocking=False)
    except Timeout:
        raise RecordError(f"{path}: another process is {doing}") from None
    except OSError as error:
        why = "its folder is a file" if isinstance(error, FileExistsError) else error.strerror or error
        raise RecordError(f"{path}: cannot be written: {why}") from None
    return held
