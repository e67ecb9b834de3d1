"""`/metrics` over HTTP, for programs that have no HTTP of their own."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from halfmoon.errors import ConfigError
from halfmoon.telemetry.metrics import CONTENT_TYPE, Metrics

_READ_DEADLINE = 5.0


class MetricsServer:
    """Answers on a thread of its own until closed, so a busy event loop does not hide the metrics."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self._http = _http_server(metrics, host, port)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._http.server_address[1])

    def close(self) -> None:
        """Stops answering and frees the port; blocks for a tenth of a second at most. Idempotent."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def serve_metrics(metrics: Metrics, host: str = "127.0.0.1", port: int = 0) -> MetricsServer:
    """Serves `metrics` under `/metrics`. Raises ConfigError when the address cannot be bound."""
    return MetricsServer(metrics, host, port)


def _http_server(metrics: Metrics, host: str, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = _READ_DEADLINE

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            body = metrics.render()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are no facts worth a line."""

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise ConfigError(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
