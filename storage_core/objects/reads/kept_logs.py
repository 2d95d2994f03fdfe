"""What a process knows of an object store, kept for the next ``Store`` that it opens there.

Spark's driver opens the store again for every step of every micro-batch. Each time it would read
the log from the last checkpoint on: up to a hundred commits. Instead it goes on from where the
process was a moment ago. The first use of a kept log asks whether its last commit is still there:
the bucket may have been emptied, or restored from a backup, meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...errors import StorageError
from ..patience import PatientBackend

if TYPE_CHECKING:
    from ...metadata.identity import Identity
    from ..commit_log import CommitLog

_KEPT_S = 60.0


class KnownLog(NamedTuple):
    """The log of a topic, and the number of the topic among those of its name."""

    number: int
    log: CommitLog

    def is_there(self) -> bool:
        """Whether the store still has the last commit that is known."""
        try:
            key = f"{self.log.prefix}{self.log.state().number:020d}.commit"
            self.log.backend.get_ranges(key, [(0, 1)])
        except (FileNotFoundError, StorageError):
            return False
        return True


class Place:
    """An object store that this process uses, with the logs of its topics by name.

    ``identity`` is what the store said when it was last opened.
    """

    def __init__(self, backend: PatientBackend) -> None:
        self.backend = backend
        self.identity: Identity | None = None
        self.logs: dict[str, KnownLog] = {}
        self.used = 0.0


_places: dict[tuple[object, ...], Place] = {}
_lock = threading.Lock()


def place_of(key: tuple[object, ...], connect: Callable[[], PatientBackend], now: float) -> Place:
    """What is known of a place; ``key`` is all that a connection depends on.

    It is kept for a while from ``now`` on, in seconds of the monotonic clock.
    """
    key = (os.getpid(), *key)  # connections do not survive a fork
    with _lock:
        for each in [each for each, place in _places.items() if now - place.used > _KEPT_S]:
            del _places[each]
        place = _places.setdefault(key, Place(connect()))
        place.used = now
        return place


def forget_all() -> None:
    """Keep nothing of what this process knows."""
    with _lock:
        _places.clear()
