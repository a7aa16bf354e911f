"""A web server of this machine, of which each double says what it answers."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class LocalServer:
    """A server at `url`, on a free port or the one named, until it is left; `serve` answers every request."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                double.serve(self)

            do_GET = do_HEAD = do_POST = do_PUT = serve

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def body(self, handler: BaseHTTPRequestHandler) -> bytes:
        """Return what a client sent."""
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))

    def send(
        self, handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str]
    ) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)
