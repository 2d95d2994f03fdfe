"""A store at a URL: it has a clock and a name, but no files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

from ..errors import ConfigError
from .posix import MachineClock


class UrlVfs(MachineClock):
    """The place of a store in an object store. Picklable; it never shows its options.

    Args:
        url: Such as ``s3://bucket/log``.
        options: What the library that reaches the store gets: region, endpoint, keys.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self.options = dict(options or {})

    @property
    def root(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"UrlVfs({self._url!r})"

    def filesystem(self) -> str:
        return ""

    def writable(self) -> bool:
        """Only a write tells."""
        return True

    def anchored(self) -> AbstractContextManager[None]:
        """Nothing to open: every request names the whole URL."""
        return nullcontext()

    def _no_files(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigError(
            f"{self._url} is an object store: it has no files. This works on directories only."
        )

    open = close = fstat = pread = pwritev = truncate = fsync = begin_writeback = _no_files
    make_read_only = make_writable = send = map = stat = listdir = sizes = mkdir = _no_files
    rmdir = rename = link = unlink = fsync_dir = try_lock = unlock = _no_files
