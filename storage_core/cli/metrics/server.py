"""A small HTTP server for one page, ``/metrics``. It takes few connections and holds none open."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

from ...errors import StorageError
from .exposition import CONTENT_TYPE

_PATIENCE_S = 10
_CONNECTIONS = 8
_FRESH_S = 1.0
_HINT = "cursus metrics: see /metrics\n"


class MetricsServer(ThreadingHTTPServer):
    """Answers ``GET /metrics`` with a text that is made at most once a second.

    Args:
        address: Where to listen; port 0 takes a free one.
        make: Makes the text. Called by one thread at a time.
        clock: Seconds of a clock that never goes back.
    """

    daemon_threads = True
    request_queue_size = _CONNECTIONS

    def __init__(
        self, address: tuple[str, int], make: Callable[[], str], clock: Callable[[], float]
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._made: tuple[float, str] | None = None
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Where a scraper finds the page."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def text(self) -> str:
        """The page now."""
        with self._lock:
            if self._made is None or self._clock() - self._made[0] >= _FRESH_S:
                self._made = self._clock(), self._make()
            return self._made[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; close the connection at once if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The answer to one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = _PATIENCE_S
    server_version, sys_version = "cursus", ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a scraper asks every few seconds."""

    def _answer(self, *, with_body: bool) -> None:
        status, text = 200, _HINT
        path = self.path.partition("?")[0]
        if path == "/metrics":
            try:
                text = self.server.text()
            except (OSError, StorageError) as error:
                status, text = 500, f"{' '.join(str(error).split())}\n"
        elif path != "/":
            status = 404
        data = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data)


def parse_address(text: str) -> tuple[str, int]:
    """``ADDRESS:PORT``, where a name may stand for the address and IPv6 stands in brackets.

    Raises:
        ValueError: it is none.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not ADDRESS:PORT, such as 127.0.0.1:9464.")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
