"""The maintenance of one partition in a broker's directory, while the broker is stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ..config import StoreConfig
from ..errors import ConfigError, StorageError
from ..maintenance.partition import FileMaintenance, Guard
from ..maintenance.report import Pace, UpkeepReport
from ..segments.listing import Listing
from ..segments.sealed import Sealed
from ..types import Problem
from ..vfs import Vfs
from .compaction import BrokerCompaction
from .layout import BROKER_LAYOUT, RowPartition
from .log import RowLog
from .segments import RowSegments


class BrokerMaintenance(FileMaintenance):
    """One partition. What only a native store can do is refused."""

    def __init__(
        self,
        of: RowPartition,
        config: StoreConfig,
        segments: RowSegments,
        topic_uuid: str,
        log: Callable[[], RowLog],
        guard: Guard,
    ) -> None:
        super().__init__(of.vfs, of.topic, of.partition, config, topic_uuid)
        self._layout = of.layout
        self._segments = segments
        self._log = log
        self._guard = guard

    def listing(self) -> Listing:
        return self._segments.listing()

    def high_watermark(self) -> int:
        return self._segments.high_watermark()

    def largest_timestamp(self, base: int, path: str) -> int:  # noqa: ARG002
        """Rows have no times: the file's own counts."""
        stat = self.vfs.stat(path)
        return 0 if stat is None else stat.modified_ns // 1000

    def retain(self, keep_from: int | None) -> list[int]:
        log = self._log()

        def run() -> list[int]:
            with log.exclusive():
                bases = self.expired(keep_from)
                drop_files(self.vfs, self.listing(), bases)
                return bases

        return self._guard(run)

    def require_deletable(self) -> None:
        if self._layout.ordinal:
            raise ConfigError(
                f"layout {self._layout.name} counts offsets from its first file, so no file can be "
                "dropped. Convert the directory to a native store."
            )

    def planned_deletion(self, offset: int, end: int, pace: Pace) -> UpkeepReport:  # noqa: ARG002
        pace.begin("delete_records", self.topic, self.partition, 0)
        return self._deletion(offset, done=False)

    def delete_before(self, offset: int, pace: Pace) -> UpkeepReport:
        """Drop the files that end at the offset or before."""
        pace.begin("delete_records", self.topic, self.partition, 0)
        log = self._log()

        def run() -> UpkeepReport:
            with log.exclusive():
                listing, report = self.listing(), self._deletion(offset, done=True)
                drop_files(self.vfs, listing, _below(listing, offset))
                return report

        return self.with_start(self._guard(run))

    def _deletion(self, offset: int, *, done: bool) -> UpkeepReport:
        listing = self.listing()
        gone = _below(listing, offset)
        stats = [self.vfs.stat(listing.path(base)) for base in gone]
        return UpkeepReport(
            "delete_records",
            self.topic,
            self.partition,
            segments_before=len(gone),
            bytes_before=sum(0 if stat is None else stat.size for stat in stats),
            start_offset=listing.bases[len(gone)] if listing.bases else 0,
            done=done or not gone,
        )

    def compact(self, pace: Pace, *, min_dirty_ratio: float | None, dry_run: bool) -> UpkeepReport:
        if self._layout is not BROKER_LAYOUT:
            raise ConfigError(
                f"layout {self._layout.name} has no keys, so nothing can be compacted."
            )
        compaction = BrokerCompaction(self, pace, self._log, self._guard)
        return self.with_start(compaction.run(min_dirty_ratio, dry_run=dry_run))

    def problems(self, segment: Sealed, pace: Pace) -> tuple[Problem, ...]:
        """Rows have no checksum, but framing, fields and offsets."""
        listing = self.listing()
        if segment.base not in listing.bases:
            raise FileNotFoundError(segment.path)
        try:
            self._segments.verify(segment.base, segment.end, listing)
        except StorageError as error:
            return (Problem.from_error(error),)
        finally:
            pace.advance(segment.size)
        return ()

    def merge(self, pace: Pace, **asked: object) -> UpkeepReport:  # noqa: ARG002
        raise self._native_only("segments are merged")

    def recompress(self, pace: Pace, **asked: object) -> UpkeepReport:  # noqa: ARG002
        raise self._native_only("records are compressed")

    def _native_only(self, what: str) -> ConfigError:
        return ConfigError(
            f"layout {self._layout.name} is what its broker reads: {what} only in native stores. "
            "Convert the directory to one."
        )


def _below(listing: Listing, offset: int) -> Sequence[int]:
    """Bases of the sealed files that end at ``offset`` or before."""
    ends = listing.bases[1:]
    return listing.bases[: sum(end <= offset for end in ends)]


def drop_files(vfs: Vfs, listing: Listing, bases: Sequence[int]) -> None:
    """Remove segments, oldest first. The caller holds the partition's lock.

    Rename, sync, delete, as the cursus broker does: after a crash its start finishes the job.
    """
    for base in bases:
        path, directory = listing.path(base), listing.directory
        index = path.removesuffix(".log") + ".index"
        prefix = f"{path.rpartition('/')[2]}.compacted-"
        sidecars = [
            f"{directory}/{name}" for name in vfs.listdir(directory) if name.startswith(prefix)
        ]
        for name in (path, index):
            with suppress(FileNotFoundError):
                vfs.rename(name, f"{name}.deleted")
        vfs.fsync_dir(directory)
        for name in (f"{path}.deleted", f"{index}.deleted", *sidecars):
            with suppress(FileNotFoundError):
                vfs.unlink(name)
