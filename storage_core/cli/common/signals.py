"""Commands that run until they are asked to end."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, while the context lasts; they end nothing themselves.

    A second signal does what it does without this: it ends the process.
    """
    stopped = threading.Event()
    before = {int(number): signal.getsignal(number) for number in _SIGNALS}

    def stop(number: int, _: FrameType | None) -> None:
        # Not here: this interrupts the main thread anywhere, also where it holds the event's lock.
        _thread.start_new_thread(stopped.set, ())
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
