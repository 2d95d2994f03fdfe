"""Objects in S3, Google Cloud Storage or Azure, by the library ``obstore``.

The library is imported at the first call. In a process that is forked after it, every call would
wait for ever: so it raises. The library repeats no call by itself, because a create that is
repeated unseen finds its own object. No error shows a credential.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..errors import ConfigError
from ..vfs import Buffer
from .backend import Contents, ObjectInfo

_CHUNK = 1000
# Larger objects are uploaded in parts of this size, several at once.
_PART_BYTES, _PARTS = 8 << 20, 4
_OWN_PIECE_BYTES = 64 << 10
_TIMEOUT = "60s"
_SECRET = re.compile(r"(?i)(<AWSAccessKeyId>|X-Amz-[A-Za-z]+=|Signature=|sig=)[^<&\s\"']+")
_IN_ENDPOINT = re.compile(r"(?<=http://)[^/\s@]+@|(?<=https://)[^/\s@]+@")
_SECRET_OPTION = re.compile(
    r"(?i)key|secret|token|password|sas|credential|service_account|proxy_url"
)
# Names that the library takes apart from those of the store; given with those it panics.
_CLIENT_OPTIONS = frozenset(
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only "
    "http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle http2_only "
    "pool_idle_timeout pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes "
    "timeout user_agent".split()
)
# The process that has used the library.
_process: int | None = None
_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")


class ObstoreBackend:
    """Objects below a URL. Safe for several threads."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url
        self._options = dict(options)

    @property
    def name(self) -> str:
        return self._url

    @property
    def lists_whole(self) -> bool:
        return False

    @property
    def _library(self) -> Any:
        _require_no_fork()
        return self._imported

    @cached_property
    def _imported(self) -> Any:
        try:
            return importlib.import_module("obstore")
        except ImportError as error:
            raise ConfigError(
                f"{self._url} needs the package obstore. Install cursus-spark with its extra "
                "[objects]: in a clone, pip install '.[objects]'."
            ) from error

    @cached_property
    def _store(self) -> Any:
        opened: Any = importlib.import_module("obstore.store")
        config, client = dict[str, str](), dict[str, Any](timeout=_TIMEOUT)
        for name, value in self._options.items():
            (client if name.lower() in _CLIENT_OPTIONS else config)[name.lower()] = value
        endpoints = [
            value
            for name, value in (*self._options.items(), *cloud_environment())
            if "endpoint" in name.lower()
        ]
        if any(value.startswith("http://") for value in endpoints):
            client.setdefault("allow_http", True)
        try:
            return opened.from_url(
                self._url,
                config=config,
                client_options=client,
                retry_config={"max_retries": 0},
            )
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library panics outside of Exception
            raise ConfigError(
                f"{self._url} cannot be opened: {self._text(error)}. Check the storage options and "
                "the environment."
            ) from None

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        self._put(key, data, "create")

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        self._put(key, data, "overwrite")

    def replace_if(self, key: str, data: Sequence[Buffer], tag: str | None) -> None:
        try:
            self._put(key, data, "create" if tag is None else _condition(tag))
        except FileNotFoundError as error:
            if tag is None:
                raise
            raise FileExistsError(errno.EEXIST, "the object is gone", key) from error

    def _put(self, key: str, data: Sequence[Buffer], mode: Any) -> None:
        # A condition holds for a single request only.
        if mode == "overwrite" and sum(map(len, data)) > _PART_BYTES:
            how = {"use_multipart": True, "chunk_size": _PART_BYTES, "max_concurrency": _PARTS}
        else:
            how = {"use_multipart": False}
        try:
            self._library.put(self._store, key, upload_pieces(data), mode=mode, **how)
        except self._errors as error:
            raise self._typed(error, key) from None

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        try:
            if ranges is None:
                found = self._library.get(self._store, key)
                return Contents((memoryview(found.bytes()),), _tag_of(found.meta))
            return Contents(self._pieces(key, ranges))
        except self._errors as error:
            raise self._typed(error, key) from None

    def _pieces(self, key: str, ranges: Sequence[tuple[int, int]]) -> tuple[memoryview, ...]:
        try:
            return self._within(key, ranges)
        except (FileNotFoundError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            # The library fails, or panics, where a range begins after the end of an object.
            end = self._library.head(self._store, key)["size"]
            if all(at + size <= end for at, size in ranges):
                raise
            return self._within(key, [(at, max(min(size, end - at), 0)) for at, size in ranges])

    def _within(self, key: str, ranges: Sequence[tuple[int, int]]) -> tuple[memoryview, ...]:
        wanted = [(at, size) for at, size in ranges if size]
        found = iter(
            self._library.get_ranges(
                self._store,
                key,
                starts=[at for at, _ in wanted],
                lengths=[size for _, size in wanted],
            )
            if wanted
            else ()
        )
        return tuple(memoryview(next(found)) if size else memoryview(b"") for _, size in ranges)

    def list_after(
        self, prefix: str, after: str = "", most: int | None = None
    ) -> Iterator[ObjectInfo]:
        found: list[ObjectInfo] = []
        try:
            offset, chunk = after or None, min(most or _CHUNK, _CHUNK)
            for batch in self._library.list(
                self._store, prefix.rstrip("/"), offset=offset, chunk_size=chunk
            ):
                # Some servers ignore where a listing should begin.
                found += [
                    ObjectInfo(each["path"], each["size"])
                    for each in batch
                    if each["path"].startswith(prefix) and each["path"] > after
                ]
                if most is not None and len(found) >= most:
                    break
        except self._errors as error:
            raise self._typed(error, prefix) from None
        return iter(sorted(found))

    def delete(self, keys: Sequence[str]) -> None:
        try:
            if keys:
                self._library.delete(self._store, list(keys))
        except self._errors as error:
            found = self._typed(error, keys[0])
            if not isinstance(found, FileNotFoundError):
                raise found from None
            if len(keys) > 1:  # some stores stop at the first object that is not there
                for key in keys:
                    self.delete([key])

    @cached_property
    def _errors(self) -> tuple[type[BaseException], ...]:
        exceptions = self._library.exceptions
        return (exceptions.BaseError, FileNotFoundError, PermissionError, OSError)

    def _typed(self, error: BaseException, key: str) -> OSError:
        exceptions, text = self._library.exceptions, self._text(error)
        if isinstance(error, exceptions.NotFoundError | FileNotFoundError):
            return FileNotFoundError(errno.ENOENT, text, key)
        if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            return FileExistsError(errno.EEXIST, text, key)
        denied = exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
        if isinstance(error, denied | PermissionError):
            return PermissionError(errno.EACCES, text, key)
        if isinstance(error, exceptions.NotSupportedError | exceptions.InvalidPathError):
            return OSError(errno.ENOTSUP, text, key)
        return ConnectionError(errno.EIO, text, key)

    def _text(self, error: BaseException) -> str:
        """The first line of an error, without credentials."""
        text = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        for name, value in (*self._options.items(), *cloud_environment()):
            if value and _SECRET_OPTION.search(name):
                text = text.replace(value, "***")
        text = _IN_ENDPOINT.sub("***@", _SECRET.sub(r"\1***", text))
        return text[:400].removesuffix(".")


def _require_no_fork() -> None:
    global _process
    if _process is None:
        _process = os.getpid()
    if _process != os.getpid():
        raise ConfigError(
            "an object store was used before this process was forked, and the library obstore does "
            "not work in the child. Start processes by spawn, or use no store before the fork."
        )


def _tag_of(meta: Mapping[str, Any]) -> str | None:
    """What a replacement is conditional on: Google compares versions, the others tags."""
    e_tag, version = meta["e_tag"] or "", meta["version"] or ""
    return f"{version}\n{e_tag}" if e_tag or version else None


def _condition(tag: str) -> dict[str, str]:
    """The inverse of ``_tag_of``, as the library wants it."""
    version, _, e_tag = tag.partition("\n")
    return {name: text for name, text in (("e_tag", e_tag), ("version", version)) if text}


def cloud_environment() -> list[tuple[str, str]]:
    """The variables that the library reads by itself."""
    return [(name, value) for name, value in os.environ.items() if name.startswith(_CLOUDS)]


def upload_pieces(data: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes for the library, which sends each piece from where it is.

    Large buffers are not copied. Small ones are joined, because each piece costs a few calls and
    Python's lock, which the library needs to give it back.
    """
    small, size = list[Buffer](), 0
    for each in data:
        is_small = len(each) < _OWN_PIECE_BYTES
        if is_small:
            small.append(each)
            size += len(each)
        if size >= _OWN_PIECE_BYTES or (small and not is_small):
            yield b"".join(small)
            small, size = [], 0
        if not is_small:
            yield each
    if small:
        yield b"".join(small)
