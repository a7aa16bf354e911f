"""A double of the Hub: a local HTTP server that keeps repositories in memory and serves the real clients.

    with HubDouble() as hub:
        subprocess.run([...], env=hub.environment(home))

The clients read where the Hub is when they are imported, so that what speaks to the double runs in a process of its own. Xet,
the Hub's own protocol for large files, is switched off by HF_HUB_DISABLE_XET=1; large files then go by LFS, as here.
"""

import base64
import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from doubles.local_server import LocalServer
from factories import Json

LARGE = (".safetensors", ".parquet")  # what the Hub keeps by LFS whatever its size
WRITER = "a-token-that-writes"
READER = "a-token-that-reads"
# A path on the Hub: an address of a repository, with or without /api, and what is wanted of it.
REPO = re.compile(
    r"(?:/api)?/(?:(?P<kind>model|dataset|space)s/)?(?P<repo>[\w.-]+/[\w.-]+?)(?P<rest>(?:\.git)?/.*)?"
)


@dataclass(frozen=True)
class File:
    content: bytes
    lfs: bool

    @cached_property  # of large files they are asked for many times
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def blob(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()

    @property
    def oid(self) -> str:
        return self.sha256 if self.lfs else self.blob


@dataclass
class Repo:
    """A repository: its revisions, oldest first, and its tags, each with its revision."""

    kind: str
    name: str
    private: bool
    revisions: dict[str, dict[str, File]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Return where it is on the Hub."""
        return self.name if self.kind == "model" else f"{self.kind}s/{self.name}"

    @property
    def head(self) -> str:
        return list(self.revisions)[-1]

    @property
    def files(self) -> dict[str, File]:
        return self.revisions[self.head]

    def commit(self, files: dict[str, File], message: str) -> str:
        """Add a revision; return its name."""
        blobs = "".join(file.blob for file in files.values())
        name = hashlib.sha1(f"{self.name} {len(self.revisions)} {blobs}".encode()).hexdigest()
        self.revisions[name] = files
        self.messages.append(message)
        return name

    def named(self, revision: str) -> str:
        """Return the full name of a revision."""
        revision = unquote(revision)
        is_main = revision in ("main", "refs/heads/main")
        name = self.head if is_main else self.tags.get(revision, revision)
        if name not in self.revisions:
            raise Refusal(404, f"no revision {revision}", "RevisionNotFound")
        return name

    def at(self, revision: str) -> dict[str, File]:
        """Return the files of a revision."""
        return self.revisions[self.named(revision)]


class Fault(NamedTuple):
    """The status of an error that the next request gets that matches."""

    method: str
    path: str  # a regular expression
    status: int


class Served(NamedTuple):
    """A file of a repository, and the revision that it is of."""

    file: File
    commit: str


class Refusal(Exception):
    def __init__(self, status: int, message: str, code: str = ""):
        super().__init__(message)
        self.status = status
        self.code = code


class HubDouble(LocalServer):
    """Serve on a free port of this machine. Use as a context manager.

    `repos` maps (kind, name) to what was pushed, `objects` holds the large files by SHA-256, `requests` every request as
    (method, path), `put` the large files that arrived whole, as often as they did. `faults` are used up in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repos: dict[tuple[str, str], Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.put: list[str] = []
        self.faults: list[Fault] = []

    def environment(self, home: Path, token: str | None = WRITER) -> dict[str, str]:
        """Return an environment in which clients use this Hub only, with an empty home."""
        home.mkdir(parents=True, exist_ok=True)
        names = ("PATH", "PYTHONPATH", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")
        variables = {name: os.environ[name] for name in names if name in os.environ}
        variables |= {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": token or ""}
        return variables | {"HOME": str(home), "HF_HOME": str(home / "hf")}

    def add(self, kind: str, name: str, folder: Path, tag: str | None = None) -> str:
        """Commit a folder as a repository's only files; return the revision's name."""
        repo = self.repos.setdefault((kind, name), Repo(kind, name, False))
        files = {
            str(path.relative_to(folder)): File(path.read_bytes(), path.name.endswith(LARGE))
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        revision = repo.commit(files, f"add {folder.name}")
        if tag:
            repo.tags[tag] = revision
        return revision

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        path = unquote(handler.path.partition("?")[0])
        body = self.body(handler)
        status = 200
        headers = {"Content-Type": "application/json"}
        try:
            with self._lock:
                answer = self._answer(handler, path, body)
        except Refusal as refusal:
            status = refusal.status
            answer = {"error": str(refusal)}
            headers |= {"X-Error-Message": str(refusal), "X-Error-Code": refusal.code}
        if isinstance(answer, Served):
            content = answer.file.content
            headers = {"ETag": f'"{answer.file.oid}"', "X-Repo-Commit": answer.commit}
        else:
            content = json.dumps(answer).encode()
        self.send(handler, status, content, headers)

    def _answer(self, handler: BaseHTTPRequestHandler, path: str, body: bytes) -> Any:
        """Return a file, or what is answered as JSON."""
        self.requests.append((handler.command, path))
        for fault in self.faults:
            if fault.method == handler.command and re.search(fault.path, path):
                self.faults.remove(fault)
                raise Refusal(fault.status, "so says the double")
        token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        match [handler.command, *path.strip("/").split("/")]:
            case ["POST", "api", "repos", "create"]:
                return self._create(json.loads(body), token)
            case ["POST", "api", "validate-yaml"]:
                return {"errors": [], "warnings": []}
            case ["PUT", "lfs", oid]:
                return self._store(oid, body)
        address = REPO.fullmatch(path)
        if address is None:
            raise Refusal(404, "no such page")
        repo = self.repos.get((address["kind"] or "model", address["repo"]))
        if repo is None or (repo.private and not token):
            raise Refusal(404 if token else 401, "Repository not found", "RepoNotFound")
        wanted = (address["rest"] or "").strip("/").split("/")
        if handler.command != "POST":
            return self._read(repo, wanted)
        self._writable(token)
        return self._write(repo, wanted, body)

    def _writable(self, token: str) -> None:
        if token != WRITER:
            raise Refusal(403 if token else 401, "this token only reads")

    def _create(self, wanted: Json, token: str) -> Any:
        self._writable(token)
        kind = wanted.get("type") or "model"
        name = f"{wanted['organization']}/{wanted['name']}"
        repo = self.repos[kind, name] = Repo(kind, name, wanted.get("visibility") == "private")
        attributes = File(b"*.safetensors filter=lfs\n", False)
        repo.commit({".gitattributes": attributes}, "initial commit")
        return {"url": f"{self.url}/{repo.place}", "name": name, "id": "1"}

    def _object(self, wanted: Json) -> Json:
        about = {"oid": wanted["oid"], "size": wanted["size"]}
        if wanted["oid"] not in self.objects:
            href = f"{self.url}/lfs/{wanted['oid']}"
            about["actions"] = {"upload": {"href": href, "header": {}}}
        return about

    def _store(self, oid: str, body: bytes) -> Any:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "other bytes than announced")
        self.objects[oid] = body
        self.put.append(oid)
        return {}

    def _read(self, repo: Repo, wanted: list[str]) -> Any:
        match wanted:
            case ["resolve", revision, *path]:
                files = repo.at(revision)
                name = "/".join(path)
                if name not in files:
                    raise Refusal(404, "Entry not found", "EntryNotFound")
                return Served(files[name], repo.named(revision))
            case [""] | ["revision", _]:
                revision = wanted[-1] or "main"
                siblings = [{"rfilename": path} for path in repo.at(revision)]
                about = {"id": repo.name, "sha": repo.named(revision), "private": repo.private}
                return about | {"siblings": siblings}
            case ["tree", revision, *folder]:
                inside = "/".join(folder)
                files = repo.at(revision).items()
                entries = [_entry(path, file) for path, file in files if path.startswith(inside)]
                if folder and not entries:
                    raise Refusal(404, "no such folder", "EntryNotFound")
                return entries
        raise Refusal(404, "no such page")

    def _write(self, repo: Repo, wanted: list[str], body: bytes) -> Any:
        match wanted:
            case ["preupload", revision]:
                files = repo.at(revision)
                return {"files": [_mode(file, files) for file in json.loads(body)["files"]]}
            case ["commit", "main"]:
                return self._commit(repo, list(map(json.loads, body.splitlines())))
            case [".git", "info", "lfs", "objects", "batch"]:
                objects = list(map(self._object, json.loads(body)["objects"]))
                return {"transfer": "basic", "objects": objects}
        raise Refusal(404, "no such page")

    def _commit(self, repo: Repo, lines: list[Json]) -> Any:
        files = dict(repo.files)
        header = lines[0]["value"]
        if header.get("parentCommit", repo.head) != repo.head:
            raise Refusal(412, "the branch has moved")
        for line in lines[1:]:
            value = line["value"]
            match line["key"]:
                case "file":
                    files[value["path"]] = File(base64.b64decode(value["content"]), False)
                case "lfsFile":
                    if value["oid"] not in self.objects:
                        raise Refusal(400, f"{value['path']}: its content was never uploaded")
                    files[value["path"]] = File(self.objects[value["oid"]], True)
        name = repo.commit(files, header["summary"])
        address = f"{self.url}/{repo.place}/commit/{name}"
        return {"success": True, "commitOid": name, "commitUrl": address}


def _entry(path: str, file: File) -> Json:
    entry = {"type": "file", "path": path, "size": len(file.content), "oid": file.blob}
    if file.lfs:
        entry["lfs"] = {"oid": file.sha256, "size": len(file.content), "pointerSize": 134}
    return entry


def _mode(wanted: Json, files: dict[str, File]) -> Json:
    mode = "lfs" if wanted["path"].endswith(LARGE) else "regular"
    answer = {"path": wanted["path"], "uploadMode": mode, "shouldIgnore": False}
    if file := files.get(wanted["path"]):
        answer["oid"] = file.oid
    return answer
