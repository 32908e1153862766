"""A stand-in for Prometheus. It answers every query with the same number, with an empty result, or with an error."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

EMPTY, BROKEN = "empty", "broken"


class LoadServer:
    """The server. `load` is a number, EMPTY (a result without series) or BROKEN (status 500)."""

    def __init__(self) -> None:
        self.load: float | str = 0.0
        self.queries = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            """Answer queries as Prometheus does."""

            def do_GET(self) -> None:
                owner.queries += 1
                value = owner.load
                series = [] if value == EMPTY else [{"metric": {}, "value": [0, _spelled(value)]}]
                body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}}).encode()
                self.send_response(500 if value == BROKEN else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, type_: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _spelled(value: float | str) -> str:
    return "+Inf" if value == float("inf") else str(value)
