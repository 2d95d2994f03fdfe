"""The socket between Spark and its Python worker: a task does not wait for the kernel's timer.

Spark sends a task in two pieces, the function and its input. The kernel that sends holds the second
piece back until the first one is acknowledged, and the kernel of a worker that had a task before
acknowledges after 40 ms (Nagle's algorithm and delayed acknowledgements). Spark unpickles the
function between the two.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import Any

_OPEN_FILES = "/proc/self/fd"
# Only Linux has the option.
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


class SentToTasks:
    """What Spark pickles for its tasks. The worker that unpickles it acknowledges at once."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_now()


def acknowledge_now() -> None:
    """Acknowledge what arrived at the TCP sockets of this process. A hint: it cannot fail."""
    if _QUICKACK is None:
        return
    with suppress(OSError):
        for name in os.listdir(_OPEN_FILES):
            with suppress(OSError):  # closed since it was listed
                _acknowledge(int(name), _QUICKACK)


def _acknowledge(descriptor: int, option: int) -> None:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return
    found = socket.socket(fileno=descriptor)
    try:
        if found.family in (socket.AF_INET, socket.AF_INET6):
            found.setsockopt(socket.IPPROTO_TCP, option, 1)
    finally:
        found.detach()  # it belongs to Spark
