"""What a commit found in a broker's log. Files have no identity: their last bytes stand for it.

A topic that the broker deletes and makes anew keeps its name, and for us its uuid. Finishing a
dead commit cuts the log to where that commit began, so first the bytes there are compared.
"""

from __future__ import annotations

from collections.abc import Callable

from ..commit.intents import PartitionIntent
from ..vfs import Vfs
from .layout import RowLayout
from .log import RowLog
from .segments import LAST_BYTES


class LastBytes:
    """For whoever holds the partitions it asks about."""

    def __init__(self, vfs: Vfs, layout: RowLayout, log: Callable[[str, int], RowLog]) -> None:
        self._vfs = vfs
        self._layout = layout
        self._log = log

    def before(self, topic: str, partition: int) -> bytes:
        """The last bytes of a log."""
        active = self._log(topic, partition).active
        return self._last_bytes(active.path, active.size)

    def matches(self, intent: PartitionIntent) -> bool | None:
        """Whether a log holds what a commit found; None if that was nothing to compare with."""
        if intent.before:
            path = self._path(intent)
            return path is not None and (
                self._last_bytes(path, intent.position).hex() == intent.before
            )
        # With bytes before it and none of them kept, the intent is of an earlier release.
        return None if intent.position or not self._is_more_than_added(intent) else False

    def _is_more_than_added(self, intent: PartitionIntent) -> bool:
        """Whether a file that was empty, with those behind it, has more than the commit adds."""
        names = self._layout.names
        directory = names.directory(self._vfs, intent.topic, intent.partition)
        found = 0
        for segment in names.segments(self._vfs, intent.topic, intent.partition):
            stat = self._vfs.stat(f"{directory}/{segment.name}")
            if segment.number >= intent.segment and stat is not None:
                found += stat.size
        return found > 0 and found > self._log(intent.topic, intent.partition).added_bytes(intent)

    def _path(self, intent: PartitionIntent) -> str | None:
        names = self._layout.names
        for segment in names.segments(self._vfs, intent.topic, intent.partition):
            if segment.number == intent.segment:
                directory = names.directory(self._vfs, intent.topic, intent.partition)
                return f"{directory}/{segment.name}"
        return None

    def _last_bytes(self, path: str, position: int) -> bytes:
        before = max(0, position - LAST_BYTES)
        fd = self._vfs.open(path, "read")
        try:
            return self._vfs.pread(fd, position - before, before)
        finally:
            self._vfs.close(fd)
