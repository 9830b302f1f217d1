"""The HTTP port on which Prometheus reads the metrics."""

from __future__ import annotations

import socket
import socketserver
import threading
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

IDLE_SECONDS: Final = 10.0
"""How long a connection may say nothing."""

_log: Final = structlog.stdlib.get_logger("memoryd.metrics")


class Exposition:
    """Serves a registry over plain HTTP from threads of its own, which the event loop does not wait for."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Binds the port; 0 takes a free one. Raises: OSError."""
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self._server = _Server(family, address)
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def address(self) -> str:
        """The host and port that it is bound to."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if self._server.address_family == socket.AF_INET6 else f"{host!s}:{port}"

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def close(self) -> None:
        """Closes the port, started or not. Blocks up to half a second."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Handler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        del format, args  # The path and the agent are the caller's words.


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True  # A reader that hangs must not keep the process from ending.
    allow_reuse_port = False  # Python's HTTP server shares ports in some versions.

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:
        self.address_family = family
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the resolver for this host's name and may wait for it long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address
        _log.warning("a reader of the metrics got no answer", exc_info=True)
