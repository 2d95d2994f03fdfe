"""The one seam for I/O: every file, lock and clock access of the engine is one of these calls.

Paths are relative to the store's root and separated by ``/``. Calls raise ``OSError`` as the
system gives it; callers turn it into a typed error. A backend of the tests that records calls, or
lets them fail, wraps another one; no caller can tell.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
OpenMode = Literal[
    "read", "write", "create", "write+dsync", "create+dsync", "write+direct", "create+direct"
]
"""``+dsync`` and ``+direct`` ask for O_DSYNC and O_DIRECT; systems without them ignore it."""
FileKind = Literal["file", "directory", "other"]


class FileStat(NamedTuple):
    """What a name leads to; ``identity`` differs between two files that had the same name."""

    kind: FileKind
    size: int
    modified_ns: int
    identity: tuple[int, int]


class Vfs(Protocol):
    """File operations below one root. Every method is safe to call from several threads."""

    @property
    def root(self) -> str:
        """Absolute path of the root, for messages."""

    def anchored(self) -> AbstractContextManager[None]:
        """Inside, this thread opens the root once, and all paths are below that directory.

        It may be renamed or replaced meanwhile: who enters the next time gets the new one. Below
        the root every call looks its path up, so a topic that was deleted is noticed at once.
        """

    def open(self, path: str, mode: OpenMode) -> int:
        """Open a regular file; ``create`` fails if the name exists. Never follows links."""

    def close(self, fd: int) -> None: ...

    def fstat(self, fd: int) -> FileStat: ...

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end of the file."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write some of the buffers and return how many bytes were taken (may be short)."""

    def truncate(self, fd: int, size: int) -> None: ...

    def fsync(self, fd: int) -> None: ...

    def begin_writeback(self, fd: int, position: int, size: int) -> None:
        """Hint: start writing these bytes to the device now. Promises nothing."""

    def make_read_only(self, fd: int) -> None: ...

    def make_writable(self, fd: int) -> None: ...

    def send(self, fd: int, sock: socket.socket, position: int, size: int) -> int:
        """Send a range of a file over a blocking socket; fewer bytes only at the file's end."""

    def map(self, fd: int) -> memoryview:
        """Map a file for reading. The map lives as long as the view or anything made from it."""

    def stat(self, path: str) -> FileStat | None:
        """What the name leads to (links are not followed), or None when it does not exist."""

    def listdir(self, path: str) -> list[str]: ...

    def sizes(self, path: str, suffix: str) -> dict[str, int]:
        """Sizes of the regular files of a directory whose names end in ``suffix``."""

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing a file of the target name."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; fails if the target exists."""

    def unlink(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def try_lock(self, fd: int) -> bool:
        """Take the exclusive advisory lock of an open file, or return False at once."""

    def unlock(self, fd: int) -> None: ...

    def now_us(self) -> int:
        """Wall clock, microseconds since 1970."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""

    def sleep(self, seconds: float) -> None: ...

    def boot_id(self) -> bytes:
        """16 bytes that change with every boot of the machine, which loses unsynced pages."""

    def filesystem(self) -> str:
        """Type of the file system under the root, such as ``ext4``; empty when unknown."""

    def writable(self) -> bool:
        """Whether this process may create files under the root."""
