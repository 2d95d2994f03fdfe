"""System calls in the form that works everywhere; ``linux.py`` overrides some with faster ones.

Both behave the same, and one test suite runs over both.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from .base import Buffer, OpenMode

_COPY_BYTES = 256 << 10


class Portable:
    """System calls that every system has. Stateless, picklable, safe for several threads."""

    def open_flags(self, mode: OpenMode) -> int:  # noqa: ARG002
        """Extra flags for a mode that asks to write through; none needed, as syncs follow."""
        return 0

    def descend(self, directory: int, path: str) -> int | None:  # noqa: ARG002
        """Open a directory several levels down in one call, following no link; None if it fails.

        The caller then opens one level at a time, and so finds out what is in the way.
        """
        return None

    def open_below(
        self,
        directory: int,  # noqa: ARG002
        path: str,  # noqa: ARG002
        flags: int,  # noqa: ARG002
        mode: int = 0,  # noqa: ARG002
    ) -> int | None:
        """Open a file several levels down in one call, following no link; None if it fails.

        The caller then opens one level at a time, and so finds out what is in the way.
        """
        return None

    def stat_below(self, directory: int, path: str) -> os.stat_result | None:  # noqa: ARG002
        """What stands several levels down, following no link; None if it fails, as above."""
        return None

    def begin_writeback(self, fd: int, position: int, size: int) -> None:
        """Hint: start writing a range now."""

    def will_read(self, fd: int, position: int, size: int) -> None:
        """Hint: the file is read forwards, and this range soon."""

    def read_direct(self, fd: int, size: int, position: int) -> bytes | None:  # noqa: ARG002
        """Read what a plain call refused as unaligned; None if alignment was not the reason."""
        return None

    def write_direct(
        self,
        fd: int,  # noqa: ARG002
        buffers: Sequence[Buffer],  # noqa: ARG002
        position: int,  # noqa: ARG002
    ) -> int | None:
        """Write what a plain call refused as unaligned; None if alignment was not the reason."""
        return None

    def send(self, fd: int, sock: socket.socket, position: int, size: int) -> int:
        """Send a range of a file over a blocking socket; fewer bytes only at the file's end."""
        sent = 0
        while sent < size:
            data = os.pread(fd, min(_COPY_BYTES, size - sent), position + sent)
            if not data:
                break
            sock.sendall(data)
            sent += len(data)
        return sent
