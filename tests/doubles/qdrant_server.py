"""A double of a Qdrant server: the requests of the real client over HTTP, answered by a client in memory.

    with QdrantServer(key="secret") as server:
        QdrantClient(url=server.url, api_key="secret")

Only what the knowledge store asks of a server is there. `requests` holds (method, path, body) of each request.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from qdrant_client import QdrantClient, models


class QdrantServer:
    """A server at `url` until it is left; with a `key` it refuses requests without it."""

    def __init__(self, key: str | None = None):
        self.key, self.requests, self.memory = key, [], QdrantClient(":memory:")

    def __enter__(self) -> "QdrantServer":
        double, one_at_a_time = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
                with one_at_a_time:
                    if double.key not in (None, self.headers.get("api-key")):
                        status, content = 401, {"status": {"error": "Must provide an API key"}}
                    else:
                        double.requests.append((self.command, urlsplit(self.path).path, body))
                        status, content = (
                            200,
                            {"result": double.result(*double.requests[-1]), "status": "ok", "time": 0.0},
                        )
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = handle_any

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def result(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """Return what Qdrant answers to a request, as JSON."""
        collection, _, action = path.removeprefix("/collections/").partition("/")
        match method, action:
            case "GET", "exists":
                return {"exists": self.memory.collection_exists(collection)}
            case "PUT", "":
                created = models.CreateCollection(**body)
                return self.memory.create_collection(collection, created.vectors, metadata=created.metadata)
            case "GET", "":
                return self.memory.get_collection(collection).model_dump(mode="json")
            case "POST", "points/count":
                return {"count": self.memory.count(collection).count}
            case "PUT", "points":
                points = [models.PointStruct(**point) for point in body["points"]]
                return self.memory.upsert(collection, points).model_dump(mode="json")
            case "POST", "points/scroll":
                points, offset = self.memory.scroll(collection, limit=body["limit"], offset=body.get("offset"))
                return {"points": [point.model_dump(mode="json") for point in points], "next_page_offset": offset}
            case "POST", "points/query/batch":
                assert all(search["params"]["exact"] for search in body["searches"])
                asked = [models.QueryRequest(**{**search, "params": None}) for search in body["searches"]]
                return [answer.model_dump(mode="json") for answer in self.memory.query_batch_points(collection, asked)]
        raise AssertionError(f"the double has no answer to {method} {path}")
