"""A proxy on loopback before an object store, which does to requests what networks and servers do.

Every request may be lost, forwarded late or twice; every reply may be lost, cut off or replaced by
an error, after the request went through. A seed decides.
"""

from __future__ import annotations

import hashlib
import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.objects.hosts import LOOPBACK

TROUBLE: dict[str, float] = {
    "slow": 0.04,
    "request lost": 0.02,
    "reply lost": 0.03,
    "forwarded late": 0.02,
    "forwarded twice": 0.03,
    "reply cut off": 0.02,
    "500": 0.02,
    "500 after all": 0.02,
    "503": 0.02,
    "409": 0.03,
}
_CONDITIONS = ("if-none-match", "if-match")
_OWN_HEADERS = ("connection", "transfer-encoding", "content-length", "keep-alive", "date", "server")


class _Reply(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Proxy(ThreadingHTTPServer):
    """The proxy; ``likely`` may be changed while it runs, ``met`` counts what it did.

    ``requests`` counts what clients sent, by method, with LIST for a GET of a listing; ``written``
    counts PUTs by what they wrote: data, commit, or other. ``proven`` counts PUTs of data by what
    shows the store that their bytes arrived unchanged.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, target: str, likely: Mapping[str, float], seed: int) -> None:
        super().__init__((LOOPBACK.address, 0), _Handler)
        self.target = urlsplit(target)
        self.likely = dict(likely)
        self.met: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.proven: Counter[str] = Counter()
        self.late: list[threading.Thread] = []
        self._random, self._lock = Random(seed), threading.Lock()

    def count(self, method: str, path: str) -> None:
        """Count a request, whatever becomes of it."""
        found = urlsplit(path)
        with self._lock:
            listing = "list-type=2" in found.query.split("&")
            self.requests["LIST" if listing else method] += 1
            if method == "PUT":
                commit = "commit" if found.path.endswith(".commit") else "other"
                self.written["data" if "/data/" in found.path else commit] += 1

    def count_proofs(self, headers: Message, body: bytes) -> None:
        """Count the signature of a body and its checksums."""
        found = [name for name in map(str.lower, headers) if name.startswith("x-amz-checksum-")]
        if headers.get("x-amz-content-sha256") == hashlib.sha256(body).hexdigest():
            found.append("signature")
        with self._lock:
            self.proven.update(found or ["nothing"])

    def forget(self) -> None:
        """Begin to count again."""
        with self._lock:
            self.requests.clear()
            self.written.clear()
            self.proven.clear()

    def trouble(self, *, conditional: bool) -> str:
        """What happens to a request; nothing, mostly."""
        with self._lock:
            for what, chance in self.likely.items():
                if (conditional or what != "409") and self._random.random() < chance:
                    self.met[what] += 1
                    return what
            self.met["requests"] += 1
            return ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise a body waits 40 ms until the client has acknowledged the head.
    disable_nagle_algorithm = True
    server: Proxy

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.count(self.command, self.path)
        if self.command == "PUT" and "/data/" in self.path:
            self.server.count_proofs(self.headers, body)
        names = [name.lower() for name in self.headers]
        what = self.server.trouble(conditional=any(name in names for name in _CONDITIONS))
        if what in ("500", "503"):
            self._send(_error(int(what)))
        elif what == "409":
            self._send(_error(409))
        elif what == "request lost":
            self.close_connection = True
        elif what == "forwarded late":
            late = threading.Thread(target=self._later, args=(body,), daemon=True)
            self.server.late.append(late)
            late.start()
            self.close_connection = True
        else:
            self._forwarded(what, body)

    def _forwarded(self, what: str, body: bytes) -> None:
        if what == "slow":
            time.sleep(0.2)
        reply = self._forward(body)
        if what == "forwarded twice":
            reply = self._forward(body)
        if what == "reply lost":
            self.close_connection = True
        elif what == "500 after all":
            self._send(_error(500))
        else:
            self._send(reply, cut=what == "reply cut off")

    def _later(self, body: bytes) -> None:
        time.sleep(0.3)
        with suppress(OSError, http.client.HTTPException):
            self._forward(body)

    def _forward(self, body: bytes) -> _Reply:
        target = self.server.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name != "Connection"}
            connection.request(self.command, self.path, body or None, headers)
            found = connection.getresponse()
            return _Reply(found.status, found.getheaders(), found.read())
        finally:
            connection.close()

    def _send(self, reply: _Reply, *, cut: bool = False) -> None:
        self.send_response_only(reply.status)
        length = len(reply.body)
        for name, value in reply.headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = int(value)
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if cut:
            self.wfile.write(reply.body[: len(reply.body) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815


def _error(status: int) -> _Reply:
    code = {409: "ConditionalRequestConflict", 500: "InternalError", 503: "SlowDown"}[status]
    body = f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()
    return _Reply(status, [("Content-Type", "application/xml")], body)


@contextmanager
def proxied(
    options: Mapping[str, str], likely: Mapping[str, float] = TROUBLE, seed: int = 0
) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """The proxy of a server, and the storage options that lead through it."""
    proxy = Proxy(options["endpoint"], likely, seed)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        endpoint = f"http://{LOOPBACK.address}:{proxy.server_address[1]}"
        yield proxy, {**options, "endpoint": endpoint}
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(10)
        for late in proxy.late:
            late.join(35)
