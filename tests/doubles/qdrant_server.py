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


class QdrantServer(LocalServer):
    """A server at `url` until it is left; with a `key` it refuses requests without it."""

    def __init__(self, key: str | None = None):
        from qdrant_client import QdrantClient  # its import takes two seconds

        super().__init__()
        self.key, self.requests, self.memory = key, [], QdrantClient(":memory:")

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(
            handler.rfile.read(int(handler.headers.get("Content-Length") or 0)) or "{}"
        )
        with self._lock:
            if self.key not in (None, handler.headers.get("api-key")):
                status, content = 401, {"status": {"error": "Must provide an API key"}}
            else:
                self.requests.append((handler.command, urlsplit(handler.path).path, body))
                status, content = (
                    200,
                    {"result": self.result(*self.requests[-1]), "status": "ok", "time": 0.0},
                )
        data = json.dumps(content).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def result(self, method: str, path: str, body: dict[str, Any]) -> Any:
        from qdrant_client import models

        collection, _, action = path.removeprefix("/collections/").partition("/")
        match method, action:
            case "GET", "exists":
                return {"exists": self.memory.collection_exists(collection)}
            case "PUT", "":
                created = models.CreateCollection(**body)
                return self.memory.create_collection(
                    collection, created.vectors, metadata=created.metadata
                )
            case "GET", "":
                return self.memory.get_collection(collection).model_dump(mode="json")
            case "POST", "points/count":
                return {"count": self.memory.count(collection).count}
            case "PUT", "points":
                points = [models.PointStruct(**point) for point in body["points"]]
                return self.memory.upsert(collection, points).model_dump(mode="json")
            case "POST", "points/scroll":
                points, offset = self.memory.scroll(
                    collection, limit=body["limit"], offset=body.get("offset")
                )
                return {
                    "points": [point.model_dump(mode="json") for point in points],
                    "next_page_offset": offset,
                }
            case "POST", "points/query/batch":
                assert all(search["params"]["exact"] for search in body["searches"])
                asked = [
                    models.QueryRequest(**{**search, "params": None}) for search in body["searches"]
                ]
                return [
                    answer.model_dump(mode="json")
                    for answer in self.memory.query_batch_points(collection, asked)
                ]
        raise AssertionError(f"the double has no answer to {method} {path}")
