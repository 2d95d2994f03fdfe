"""A small server with S3's interface, in a thread: right, or wrong in a way that real servers are.

It speaks Google's as well, which has numbers of generations in the place of tags. Real servers that
fail the semantics gate are large to install. This one has their faults on demand, so that the gate
meets them over a real connection in every run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.objects.hosts import LOOPBACK
from tests.support.objects.object_server import BUCKET, KEY, SECRET

PAGE = 1000
FAULTS = (
    "conditions are ignored",
    "creates are ignored",
    "tags are ignored",
    "check, then put",
    "listings are old",
    "listings end early",
)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fault: str) -> None:
        super().__init__((LOOPBACK.address, 0), _Handler)
        self.fault = fault
        self.objects: dict[str, bytes] = {}
        self.generations: dict[str, int] = {}
        self.listed: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.requests: Counter[str] = Counter()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise a body waits 40 ms until the client has acknowledged the head.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

    @property
    def _generation(self) -> str:
        return str(self.server.generations.get(self._key, 0))

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server, fault = self.server, self.server.fault
        if fault == "check, then put":
            allowed = self._allowed()
            time.sleep(0.02)
            with server.lock:
                status = self._put(body, allowed=allowed)
        else:
            with server.lock:
                status = self._put(body, allowed=self._allowed())
        self._answer(status, ETag=_tag(body), x_goog_generation=self._generation)

    def _allowed(self) -> bool:
        """Whether the conditions of the request hold."""
        fault, found = self.server.fault, self.server.objects.get(self._key)
        generation = self.headers.get("x-goog-if-generation-match")
        if generation is not None and fault != "conditions are ignored":
            return int(generation) == (0 if found is None else self.server.generations[self._key])
        if self.headers.get("If-None-Match") == "*":
            ignored = fault in ("conditions are ignored", "creates are ignored")
            return found is None or ignored
        wanted = self.headers.get("If-Match")
        if wanted is not None and fault not in ("conditions are ignored", "tags are ignored"):
            return found is not None and _tag(found) == wanted
        return True

    def _put(self, body: bytes, *, allowed: bool) -> int:
        if not allowed:
            return 412
        self.server.objects[self._key] = body
        self.server.generations[self._key] = next(_generations)
        return 200

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list({name: found[0] for name, found in query.items()})
            return
        found = self.server.objects.get(self._key)
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        asked = self.headers.get("Range")
        if asked is None:
            generation = self._generation
            self._answer(
                200, found, ETag=_tag(found), Last_Modified=_MOMENT, x_goog_generation=generation
            )
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        end = min(int(last) + 1 if last else len(found), len(found))
        if int(first) >= len(found):
            self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
            return
        self._answer(
            206,
            found[int(first) : end],
            ETag=_tag(found),
            Last_Modified=_MOMENT,
            Content_Range=f"bytes {first}-{end - 1}/{len(found)}",
        )

    do_HEAD = do_GET  # noqa: N815

    def _list(self, query: dict[str, str]) -> None:
        server = self.server
        with server.lock:
            shown = server.objects
            if server.fault == "listings are old":
                shown, server.listed = server.listed, dict(server.objects)
            server.requests["LIST"] += 1
            prefix, after = query.get("prefix", ""), query.get("start-after", "")
            after = max(after, query.get("continuation-token", ""))
            keys = sorted(key for key in shown if key.startswith(prefix) and key > after)
            if server.fault == "listings end early":
                keys = keys[:-1]
            more = keys[PAGE - 1] if len(keys) > PAGE else ""
            keys = keys[:PAGE]
            entries = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(shown[key])}</Size>"
                f"<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(_tag(shown[key]))}</ETag></Contents>"
                for key in keys
            )
        body = (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(keys)}</KeyCount><IsTruncated>{'true' if more else 'false'}"
            f"</IsTruncated>{entries}"
            + (f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else "")
            + "</ListBucketResult>"
        )
        self._answer(200, body.encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        keys = [found.text or "" for found in ElementTree.fromstring(body).iter() if _is_key(found)]
        with self.server.lock:
            for key in keys:
                self.server.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        with self.server.lock:
            self.server.objects.pop(self._key, None)
        self._answer(204)


_generations = itertools.count(1_700_000_000_000_000)
_MOMENT = "Thu, 01 Jan 2026 00:00:00 GMT"


def _is_key(element: ElementTree.Element) -> bool:
    return element.tag.rpartition("}")[2] == "Key"


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


@contextmanager
def small_server(fault: str = "", requests: Counter[str] | None = None) -> Iterator[dict[str, str]]:
    """A server with an empty bucket; yields the storage options that reach it.

    ``requests`` counts its listings.
    """
    server = _Server(fault)
    server.requests = Counter() if requests is None else requests
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield {
            "endpoint": f"http://{LOOPBACK.address}:{server.server_address[1]}",
            "region": "us-east-1",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def as_google(options: Mapping[str, str]) -> dict[str, str]:
    """The storage options that reach the same server by ``gs://``."""
    account = {
        "gcs_base_url": options["endpoint"],
        "disable_oauth": True,
        "client_email": "",
        "private_key": SECRET,
        "private_key_id": "",
    }
    return {"service_account_key": json.dumps(account), "allow_http": "true"}
