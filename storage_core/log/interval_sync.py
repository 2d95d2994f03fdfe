"""The thread that syncs partitions whose topic asks for ``fsync=interval``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from ..errors import StorageError

_log = logging.getLogger("storage_core")


class Flusher:
    """Calls ``flush`` within the interval after a ``wake``. The first ``wake`` starts it."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due_in: float | None = None
        self._stopping = False

    def wake(self, interval_ms: int) -> None:
        """A writer wrote records: flush them within ``interval_ms``."""
        with self._condition:
            wait = interval_ms / 1000
            self._due_in = wait if self._due_in is None else min(wait, self._due_in)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cursus-fsync", daemon=True)
                self._thread.start()
            self._condition.notify()

    def stop(self) -> None:
        """Stop the thread. The caller flushes what is still unsynced."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _wait(self) -> None:
        """Wait until a flush is due. Appends in the meantime must not end the wait early."""
        while not self._stopping:
            due_in = self._due_in
            if self._condition.wait_for(partial(self._changed, due_in), due_in):
                continue
            return

    def _changed(self, due_in: float | None) -> bool:
        return self._stopping or self._due_in != due_in

    def _run(self) -> None:
        while True:
            with self._condition:
                self._wait()
                if self._stopping:
                    return
                self._due_in = None
            try:
                self._flush()
            except StorageError as error:
                # The partition is closed for writing: its next append raises this error's cause.
                _log.error("the background sync failed: %s", error)
