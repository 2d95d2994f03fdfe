"""The fingerprint of a broker's log: the last bytes that a commit found in it.

A broker's files have no identity. If the broker deletes and recreates a topic, the topic keeps its
name, and for us its uuid. Finishing an interrupted commit cuts the log to where the commit began,
so the bytes there are compared first.
"""

from __future__ import annotations

from collections.abc import Callable

from ..commit.intents import PartitionIntent
from ..vfs import Vfs
from .layout import RowLayout
from .log import RowLog
from .segments import LAST_BYTES


class LastBytes:
    """Fingerprints of partitions whose locks the caller holds."""

    def __init__(self, vfs: Vfs, layout: RowLayout, log: Callable[[str, int], RowLog]) -> None:
        self._vfs = vfs
        self._layout = layout
        self._log = log

    def before(self, topic: str, partition: int) -> bytes:
        """The last bytes of a log."""
        active = self._log(topic, partition).active
        return self._last_bytes(active.path, active.size)

    def matches(self, intent: PartitionIntent) -> bool | None:
        """Whether a log still has what a commit found; None if there is nothing to compare with."""
        if intent.before:
            path = self._path(intent)
            return path is not None and (
                self._last_bytes(path, intent.position).hex() == intent.before
            )
        # With bytes before it and none of them kept, the intent is of an earlier release.
        return None if intent.position or not self._is_more_than_added(intent) else False

    def _is_more_than_added(self, intent: PartitionIntent) -> bool:
        """Whether a file that was empty, with the files after it, has more than the commit adds."""
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
