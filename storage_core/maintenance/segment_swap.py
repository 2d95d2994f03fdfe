"""Putting a rewritten segment in the place of sealed ones, while others read, write and crash.

The long work writes ``<base>.rewrite`` beside the log and takes no lock that a writer waits for.
Then, with the partition locked for a moment:

1. The new file, synced before, is renamed over the first old segment. **This is the decision**: its
   frames cover what all the old ones did, so a reader gets the same from old and new.
2. The directory is synced and the new indexes are written.
3. The other old segments go, under one range marker (see ``segments.deletion_markers``).

A crash before 1 leaves a ``.rewrite`` file that the next operation removes. After it, recovery does
the rest. Readers that have an old file open finish on it. Before the swap the old segments are
compared with what was read: if retention or another process changed one, the new file is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise

from ..config import StoreConfig
from ..errors import BrokenFrameError, StoppedError
from ..format.file_names import REWRITE, segment_file
from ..io.io_errors import typed_read_errors, typed_write_errors
from ..io.locks import ensure_lock_file, locked
from ..log.partition_log import PartitionLog
from ..segments.deletion_markers import drop_merged, drop_segments
from ..segments.index_files import drop_indexes, write_indexes
from ..segments.listing import log_path
from ..segments.sealed import Sealed, SealedLog
from .partition import Guard
from .report import Action, Pace, UpkeepReport
from .segment_rewriter import Rewritten, SegmentRewriter


@contextmanager
def maintenance_lock(files: SealedLog, config: StoreConfig) -> Iterator[None]:
    """Keep other maintenance out of a partition; writers and readers go on."""
    lock = f"meta/upkeep/{files.topic}/{files.partition}.lock"
    ensure_lock_file(files.vfs, lock)
    with locked(files.vfs, lock, config.lock_timeout_ms):
        yield


class Replacer:
    """Replaces segments of one partition for one operation. Not thread-safe."""

    def __init__(
        self,
        files: SealedLog,
        log: PartitionLog,
        config: StoreConfig,
        guard: Guard,
    ) -> None:
        self._vfs = files.vfs
        self._log = log
        self._guard = guard
        self.files = files
        self.config = config

    @property
    def topic(self) -> str:
        return self.files.topic

    @property
    def partition(self) -> int:
        return self.files.partition

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other maintenance out of the partition; writers and readers go on."""
        what = f"{self.topic}-{self.partition}: rewriting its segments"
        with (
            typed_write_errors(what, self.topic),
            maintenance_lock(self.files, self.config),
        ):
            self._guard(self._recovered)
            for name in self._vfs.listdir(self.files.directory):
                if name.endswith(REWRITE):
                    self._vfs.unlink(f"{self.files.directory}/{name}")
            yield

    @contextmanager
    def rewriter(self, base: int) -> Iterator[SegmentRewriter]:
        """A writer of a new segment; its file is removed if the work fails."""
        path = f"{self.files.directory}/{segment_file(base, REWRITE)}"
        writer = SegmentRewriter(self._vfs, path, base, self.config, self.files.schemas)
        try:
            yield writer
        except BaseException as error:
            with suppress(OSError):
                writer.abandon()
            if isinstance(error, BrokenFrameError):
                with typed_read_errors(self.topic, self.partition, self.files.directory):
                    raise
            raise

    def rewrite_each(
        self,
        action: Action,
        groups: Sequence[Sequence[Sealed]],
        pace: Pace,
        *,
        codec: int | None = None,
        is_due: Callable[[Sealed], bool] = lambda _: True,
    ) -> UpkeepReport:
        """Rewrite each group of neighbours as one segment, under ``codec``. Only inside ``held``.

        A group is left out if its first segment is not due. What is finished stays if the caller
        stops it.
        """
        report = UpkeepReport(action, self.topic, self.partition)
        sizes = [sum(segment.size for segment in group) for group in groups]
        try:
            pace.begin(action, self.topic, self.partition, sum(sizes))
            for group, size in zip(groups, sizes, strict=True):
                new = None
                with suppress(FileNotFoundError):  # removed by retention
                    if is_due(group[0]):
                        new = self._rewritten(group, codec, pace)
                    else:
                        pace.advance(size)
                if new is not None and self.replace(group, new):
                    report = report.counted(size, new.size, segments=len(group))
        except StoppedError:
            return report.stopped()
        return report

    def _rewritten(self, group: Sequence[Sealed], codec: int | None, pace: Pace) -> Rewritten:
        with self.rewriter(group[0].base) as writer:
            for segment in group:
                for frame in self.files.frames(segment):
                    writer.carry(frame, codec)
                    pace.advance(frame.header.length)
            return writer.finish()

    def replace(self, old: Sequence[Sealed], new: Rewritten) -> bool:
        """Put ``new`` in the place of ``old``; False if they are no longer what was read."""

        def swap() -> bool:
            with self._log.exclusive():
                return self._swap(old, new)

        return self._guard(swap)

    def cut_off(self, old: Sequence[Sealed], start: int, rest: Rewritten | None) -> bool:
        """Drop the oldest segments; ``rest`` is what stays of the last of them.

        Returns False if they are no longer what was read.
        """

        def drop() -> bool:
            with self._log.exclusive():
                if not self._unchanged(old):
                    return False
                if rest is not None:
                    self._vfs.rename(rest.path, log_path(self.files.directory, start))
                    self._vfs.fsync_dir(self.files.directory)
                    write_indexes(self._vfs, self.files.directory, start, rest.indexes, rest.size)
                drop_segments(self._vfs, self.files.directory, [each.base for each in old], start)
                return True

        return self._guard(drop)

    def sync(self) -> None:
        """Make every record durable, whatever the topic's policy."""

        def run() -> bool:
            with self._log.exclusive():
                self._log.sync()
                return True

        self._guard(run)

    def seal_active(self) -> None:
        """Seal the active segment and begin an empty one after it."""

        def roll() -> bool:
            return self._log.roll(begin=True)

        self._guard(roll)

    def _recovered(self) -> bool:
        with self._log.exclusive():
            return True

    def _swap(self, old: Sequence[Sealed], new: Rewritten) -> bool:
        if not self._unchanged(old) or (new.base, new.end) != (old[0].base, old[-1].end):
            self._vfs.unlink(new.path)
            return False
        drop_indexes(self._vfs, self.files.directory, new.base)
        self._vfs.rename(new.path, old[0].path)
        # Durable before the old files go: then only the new file has their records.
        self._vfs.fsync_dir(self.files.directory)
        write_indexes(self._vfs, self.files.directory, new.base, new.indexes, new.size)
        if len(old) > 1:
            drop_merged(self._vfs, self.files.directory, [each.base for each in old[1:]], new.end)
        return True

    def _unchanged(self, old: Sequence[Sealed]) -> bool:
        now = {each.base: each for each in self.files.segments()}
        chained = all(one.end == two.base for one, two in pairwise(old))
        return chained and all(now.get(each.base) == each for each in old)
