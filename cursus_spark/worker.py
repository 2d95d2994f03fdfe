"""What a Python worker does when Spark gives it work: two waits of PySpark are left out.

Spark sends a task in two pieces, the function and its input. The kernel that sends holds the second
piece back until the first one is acknowledged, and the kernel of a worker that had a task before
acknowledges after 40 ms (Nagle's algorithm and delayed acknowledgements). Spark unpickles the
function between the two. So the worker acknowledges at once.

After each task the worker collects garbage, and looks at all that was ever imported: 25 to 50 ms,
three times in a micro-batch, while the next task waits. So the worker freezes what it has imported.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
from contextlib import suppress
from typing import Any

from .errors import is_worker

_OPEN_FILES = "/proc/self/fd"
# Only Linux has the option.
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_times = 0


class SentToTasks:
    """What Spark pickles for its tasks. Unpickled, it tells the worker that there is work."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        got_work()


def got_work() -> None:
    """Acknowledge the work; the second time, freeze what is loaded.

    Not the first time: the worker still imports then, and it has just collected its garbage before
    the second. Frozen objects are deleted as ever when nothing refers to them.
    """
    global _times
    _times += 1
    acknowledge_now()
    if _times == 2 and is_worker():
        gc.freeze()


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
