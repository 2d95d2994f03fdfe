"""Repeating calls that failed in a way that may pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from ..vfs import Buffer, Vfs
from .backend import Contents, ObjectBackend, ObjectInfo

TRANSIENT = (TimeoutError, ConnectionError, InterruptedError, BlockingIOError)
"""Errors after which a call is repeated; it may have happened."""
_FIRST_WAIT_S, _MAX_DOUBLINGS = 0.002, 6
Result = TypeVar("Result")


class Patience:
    """Waits for random times that grow, and gives up after a while."""

    def __init__(self, clock: Vfs, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds

    def deadline(self) -> float:
        """When to give up what begins now, by the monotonic clock."""
        return self._clock.monotonic() + self._seconds

    def is_over(self, deadline: float) -> bool:
        return self._clock.monotonic() > deadline

    def wait(self, tries: int) -> None:
        """A random time: without it, racing writers lose most of their creates."""
        longest = _FIRST_WAIT_S * 2 ** min(tries, _MAX_DOUBLINGS)
        self._clock.sleep(random.uniform(0, longest))

    def run(self, call: Callable[[], Result]) -> Result:
        """Repeat a call that can be repeated; once even if the first try took all of the time."""
        until, tries = self.deadline(), 0
        while True:
            try:
                return call()
            except TRANSIENT:
                if tries and self.is_over(until):
                    raise
                tries += 1
                self.wait(tries)


class PatientBackend:
    """A backend whose reads, puts and deletions are repeated. Conditional writes are not.

    Only the caller of a conditional write can tell what a repeated one means.
    """

    def __init__(self, inner: ObjectBackend, patience: Patience) -> None:
        self.inner = inner
        self.patience = patience

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def lists_whole(self) -> bool:
        return self.inner.lists_whole

    def create(self, key: str, data: Sequence[Buffer]) -> None:
        self.inner.create(key, data)

    def put(self, key: str, data: Sequence[Buffer]) -> None:
        self.patience.run(lambda: self.inner.put(key, data))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        return self.patience.run(lambda: self.inner.get_ranges(key, ranges))

    def list_after(
        self, prefix: str, after: str = "", most: int | None = None
    ) -> Iterator[ObjectInfo]:
        return iter(self.patience.run(lambda: list(self.inner.list_after(prefix, after, most))))

    def list_some(self, prefix: str, after: str, most: int) -> list[ObjectInfo]:
        """The first objects of a listing, with no more requests than they take."""

        def listed() -> list[ObjectInfo]:
            return list(islice(self.inner.list_after(prefix, after, most), most))

        return self.patience.run(listed)

    def delete(self, keys: Sequence[str]) -> None:
        self.patience.run(lambda: self.inner.delete(keys))

    def replace_if(self, key: str, data: Sequence[Buffer], tag: str | None) -> None:
        self.inner.replace_if(key, data, tag)
