"""A double of a Qdrant server: the requests of the real client over HTTP, answered by a client in memory.

    with QdrantServer(key="secret") as server:
        QdrantClient(url=server.url, api_key="secret")

Only what the knowledge store asks of a server is there. `requests` holds (method, path, body) of each request.
"""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from doubles.local_server import LocalServer
from factories import Json


def plain(record: Any) -> Any:
    """Return a record of the client as JSON has it."""
    return record.model_dump(mode="json")


class QdrantServer(LocalServer):
    """A server at `url` until it is left; with a `key` it refuses requests without it."""

    def __init__(self, key: str | None = None):
        from qdrant_client import QdrantClient  # its import takes two seconds

        super().__init__()
        self.key, self.requests, self.memory = key, [], QdrantClient(":memory:")

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(self.body(handler) or "{}")
        status = 401
        content = {"status": {"error": "Must provide an API key"}}
        with self._lock:
            if self.key in (None, handler.headers.get("api-key")):
                self.requests.append((handler.command, urlsplit(handler.path).path, body))
                result = self.result(*self.requests[-1])
                status = 200
                content = {"result": result, "status": "ok", "time": 0.0}
        data = json.dumps(content).encode()
        self.send(handler, status, data, {"Content-Type": "application/json"})

    def result(self, method: str, path: str, body: Json) -> Any:
        from qdrant_client import models

        collection, _, action = path.removeprefix("/collections/").partition("/")
        match method, action:
            case "GET", "exists":
                return {"exists": self.memory.collection_exists(collection)}
            case "PUT", "":
                created = models.CreateCollection(**body)
                more = {"metadata": created.metadata}
                return self.memory.create_collection(collection, created.vectors, **more)
            case "GET", "":
                return plain(self.memory.get_collection(collection))
            case "POST", "points/count":
                return {"count": self.memory.count(collection).count}
            case "PUT", "points":
                points = [models.PointStruct(**point) for point in body["points"]]
                return plain(self.memory.upsert(collection, points))
            case "POST", "points/scroll":
                where = {"limit": body["limit"], "offset": body.get("offset")}
                points, offset = self.memory.scroll(collection, **where)
                return {"points": [*map(plain, points)], "next_page_offset": offset}
            case "POST", "points/query/batch":
                assert all(search["params"]["exact"] for search in body["searches"])
                wanted = [search | {"params": None} for search in body["searches"]]
                asked = [models.QueryRequest(**search) for search in wanted]
                return [*map(plain, self.memory.query_batch_points(collection, asked))]
        raise AssertionError(f"the double has no answer to {method} {path}")
