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
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from doubles.local_server import LocalServer

LARGE = (".safetensors", ".parquet")  # what the Hub keeps by LFS whatever its size
WRITER, READER = "a-token-that-writes", "a-token-that-reads"
MIME = {"bytes": "application/octet-stream", "json": "application/json"}
REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
API = re.compile(rf"/api/(?P<kind>model|dataset|space)s/{REPO}(?P<rest>/.*)?")
BATCH = re.compile(rf"/(?:(?P<kind>dataset|space)s/)?{REPO}\.git/info/lfs/objects/batch")
RESOLVE = re.compile(
    rf"/(?:(?P<kind>dataset|space)s/)?{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"
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


@dataclass
class Repo:
    """A repository: its revisions, oldest first, and the refs besides `main`, each with its revision."""

    kind: str
    name: str
    private: bool
    revisions: dict[str, dict[str, File]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)

    @property
    def head(self) -> str:
        return list(self.revisions)[-1]

    @property
    def files(self) -> dict[str, File]:
        return self.revisions[self.head]

    def commit(self, files: dict[str, File], message: str) -> str:
        """Add a revision; return its name."""
        parts = [
            self.kind,
            self.name,
            str(len(self.revisions)),
            *(f"{path} {files[path].blob}" for path in files),
        ]
        name = hashlib.sha1("\n".join(parts).encode()).hexdigest()
        self.revisions[name] = files
        self.messages.append(message)
        return name

    def at(self, revision: str) -> dict[str, File]:
        """Return the files of a revision."""
        revision = unquote(revision)
        is_main = revision in ("main", "refs/heads/main")
        name = self.head if is_main else self.refs.get(f"refs/tags/{revision}", revision)
        if name not in self.revisions:
            raise Refusal(404, f"no revision {revision}", "RevisionNotFound")
        return self.revisions[name]


@dataclass
class Fault:
    """The status of an error that the next requests get that match."""

    method: str
    path: str  # a regular expression
    status: int
    times: int = 1


class Refusal(Exception):
    def __init__(self, status: int, message: str, code: str | None = None):
        super().__init__(message)
        self.status, self.code = status, code


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
        variables = {
            "HF_ENDPOINT": self.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        variables |= {"HOME": str(home), "HF_HOME": str(home / "hf"), "PATH": os.environ["PATH"]}
        variables |= {
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
        }
        variables |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return variables | ({"HF_TOKEN": token} if token else {})

    def add(self, kind: str, name: str, folder: Path, tag: str | None = None) -> str:
        """Commit a folder as a repository's only files; return the revision's name."""
        repo = self.repos.setdefault((kind, name), Repo(kind, name, False))
        paths = {
            str(path.relative_to(folder)): path
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        files = {
            each: File(path.read_bytes(), each.endswith(LARGE)) for each, path in paths.items()
        }
        revision = repo.commit(files, f"add {folder.name}")
        if tag:
            repo.refs[f"refs/tags/{tag}"] = revision
        return revision

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        if self._closing.is_set():
            handler.close_connection = True
            return
        path, _, query = handler.path.partition("?")
        path = unquote(path)
        with self._lock:
            self.requests.append((handler.command, path))
            fault = self._fault(handler.command, path)
        try:
            body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
            if fault is not None:
                raise Refusal(fault.status, "so says the double")
            with self._lock:
                answer = self._answer(handler, path, parse_qs(query), body)
            self._send(handler, answer)
        except Refusal as refusal:
            headers = {"X-Error-Message": str(refusal)} | (
                {"X-Error-Code": refusal.code} if refusal.code else {}
            )
            self._send(handler, (refusal.status, {"error": str(refusal)}, headers))
        except ConnectionError:
            handler.close_connection = True

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == method and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None

    def _send(self, handler: BaseHTTPRequestHandler, answer: tuple) -> None:
        status, content, headers = answer
        kind = "bytes" if isinstance(content, bytes) else "json"
        content = content if kind == "bytes" else json.dumps(content).encode()
        handler.send_response(status)
        for name, value in {
            "Content-Type": MIME[kind],
            "Content-Length": str(len(content)),
            **headers,
        }.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        handler.wfile.write(content)

    def _answer(
        self, handler: BaseHTTPRequestHandler, path: str, query: dict, body: bytes
    ) -> tuple:
        token = (handler.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        if token not in (None, WRITER, READER) and not path.startswith("/lfs/"):
            raise Refusal(401, "Invalid credentials in Authorization header")
        if path == "/api/repos/create":
            return self._create(json.loads(body), token)
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        if path == "/api/whoami-v2":
            return 200, {"type": "user", "name": "somebody", "orgs": []}, {}
        if path.startswith("/lfs/") and handler.command == "PUT":
            return self._store(path.removeprefix("/lfs/"), body)
        if match := BATCH.fullmatch(path):
            self._writable(self._repo(match, token), token)
            objects = [self._object(each) for each in json.loads(body)["objects"]]
            return 200, {"transfer": "basic", "objects": objects}, {}
        if match := RESOLVE.fullmatch(path):
            return self._file(self._repo(match, token), match)
        if match := API.fullmatch(path):
            return self._api(
                self._repo(match, token), match["rest"] or "", token, handler, query, body
            )
        raise Refusal(404, "no such page")

    def _repo(self, match: re.Match, token: str | None) -> Repo:
        repo = self.repos.get((match["kind"] or "model", match["repo"]))
        if repo is None or (repo.private and token is None):
            raise Refusal(401 if token is None else 404, "Repository not found", "RepoNotFound")
        return repo

    def _writable(self, repo: Repo, token: str | None) -> None:
        if token != WRITER:
            raise Refusal(403, "this token only reads")

    def _create(self, wanted: dict[str, Any], token: str | None) -> tuple:
        if token != WRITER:
            raise Refusal(401 if token is None else 403, "this token only reads")
        kind, name = wanted.get("type") or "model", f"{wanted['organization']}/{wanted['name']}"
        url = f"{self.url}/{'' if kind == 'model' else kind + 's/'}{name}"
        if (kind, name) in self.repos:
            return 409, {"error": "You already created this repo", "url": url}, {}
        repo = self.repos[kind, name] = Repo(kind, name, wanted.get("visibility") == "private")
        repo.commit(
            {".gitattributes": File(b"*.safetensors filter=lfs\n", False)}, "initial commit"
        )
        return 200, {"url": url, "name": name, "id": "1"}, {}

    def _object(self, wanted: dict[str, Any]) -> dict[str, Any]:
        upload = {"upload": {"href": f"{self.url}/lfs/{wanted['oid']}", "header": {}}}
        there = {} if wanted["oid"] in self.objects else {"actions": upload}
        return {"oid": wanted["oid"], "size": wanted["size"], **there}

    def _store(self, oid: str, body: bytes) -> tuple:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "other bytes than announced")
        self.objects[oid] = body
        self.put.append(oid)
        return 200, {}, {"ETag": oid}

    def _api(
        self, repo: Repo, rest: str, token: str | None, handler: Any, query: dict, body: bytes
    ) -> tuple:
        parts = rest.strip("/").split("/")
        if parts[0] in ("preupload", "commit"):
            self._writable(repo, token)
        match [handler.command, *parts]:
            case ["GET", ""] | ["GET", "revision", _]:
                return 200, self._info(repo, parts[-1] or "main"), {}
            case ["GET", "tree", revision, *folder]:
                entries = list(
                    self._tree(repo.at(revision), "/".join(folder), query.get("recursive", [""])[0])
                )
                if folder and not entries:
                    raise Refusal(404, "no such folder", "EntryNotFound")
                return 200, entries, {}
            case ["POST", "paths-info", revision]:
                files, wanted = repo.at(revision), parse_qs(body.decode()).get("paths", [])
                if "json" in handler.headers.get("Content-Type", ""):
                    wanted = json.loads(body)["paths"]
                return 200, [_entry(path, files[path]) for path in wanted if path in files], {}
            case ["POST", "preupload", revision]:
                return (
                    200,
                    {
                        "files": [
                            _mode(each, repo.at(revision)) for each in json.loads(body)["files"]
                        ]
                    },
                    {},
                )
            case ["POST", "commit", "main"]:
                return self._commit(repo, [json.loads(line) for line in body.splitlines()])
        raise Refusal(404, "no such page")

    def _info(self, repo: Repo, revision: str) -> dict[str, Any]:
        files = repo.at(revision)
        name = next(name for name, held in repo.revisions.items() if held is files)
        about = {
            "id": repo.name,
            "sha": name,
            "private": repo.private,
            "disabled": False,
            "gated": False,
        }
        about |= {
            "siblings": [{"rfilename": path} for path in files],
            "tags": [],
            "downloads": 0,
            "likes": 0,
        }
        return about | {
            "lastModified": "2026-01-01T00:00:00.000Z",
            "createdAt": "2026-01-01T00:00:00.000Z",
        }

    def _tree(
        self, files: dict[str, File], folder: str, recursive: str
    ) -> Iterator[dict[str, Any]]:
        folders = set()
        for path in files:
            if folder and not path.startswith(folder + "/"):
                continue
            inner = path[len(folder) :].lstrip("/")
            for parent in Path(inner).parents[-2::-1] if "/" in inner else ():
                name = f"{folder}/{parent}".lstrip("/")
                if name not in folders and (recursive.lower() == "true" or "/" not in str(parent)):
                    folders.add(name)
                    yield {
                        "type": "directory",
                        "path": name,
                        "size": 0,
                        "oid": hashlib.sha1(name.encode()).hexdigest(),
                    }
            if recursive.lower() == "true" or "/" not in inner:
                yield _entry(path, files[path])

    def _commit(self, repo: Repo, lines: list[dict[str, Any]]) -> tuple:
        files, header = dict(repo.files), lines[0]["value"]
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
                case "deletedFile":
                    del files[value["path"]]
        name = repo.commit(files, header["summary"])
        place = repo.name if repo.kind == "model" else f"{repo.kind}s/{repo.name}"
        return (
            200,
            {"success": True, "commitOid": name, "commitUrl": f"{self.url}/{place}/commit/{name}"},
            {},
        )

    def _file(self, repo: Repo, match: re.Match) -> tuple:
        files = repo.at(match["revision"])
        if match["path"] not in files:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        file = files[match["path"]]
        name = next(name for name, held in repo.revisions.items() if held is files)
        etag = f'"{file.sha256 if file.lfs else file.blob}"'
        return 200, file.content, {"ETag": etag, "X-Repo-Commit": name}


def _entry(path: str, file: File) -> dict[str, Any]:
    large = (
        {"lfs": {"oid": file.sha256, "size": len(file.content), "pointerSize": 134}}
        if file.lfs
        else {}
    )
    return {"type": "file", "path": path, "size": len(file.content), "oid": file.blob, **large}


def _mode(wanted: dict[str, Any], files: dict[str, File]) -> dict[str, Any]:
    lfs, there = wanted["path"].endswith(LARGE), files.get(wanted["path"])
    answer = {
        "path": wanted["path"],
        "uploadMode": "lfs" if lfs else "regular",
        "shouldIgnore": False,
    }
    return answer | ({"oid": there.sha256 if there.lfs else there.blob} if there else {})
