"""The indexes and statistics of a segment: read, built from the log, written, removed.

They are hints: none is synced, and a reader that finds one damaged or stale uses the log.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..config import GIB, StoreConfig
from ..errors import BrokenFrameError
from ..format.file_names import HINTS, IDX, STATS, TIMEIDX, segment_file
from ..format.frame import HEADER_BYTES, unpack_header
from ..format.frame_scan import last_header, walk_frames
from ..format.sparse_index import IndexBuilder, IndexKind, encode_entries, parse_sealed, seal
from ..io.byte_source import MappedSource, Source, open_source
from ..io.durable import read_file, replace_file
from ..lazy import LazyModule
from ..types import Int64s
from ..vfs import Vfs
from .listing import log_path

if TYPE_CHECKING:
    from ..format import segment_statistics
    from ..format.segment_statistics import VersionStatistics
else:  # only typed topics have statistics
    segment_statistics = LazyModule("storage_core.format.segment_statistics")

_STATISTICS_WINDOW = 64 << 10
_STATISTICS_BYTES = 256 << 20
_SUFFIXES: dict[IndexKind, str] = {"offset": IDX, "time": TIMEIDX}


def index_path(directory: str, base: int, kind: IndexKind) -> str:
    """Path of an index file of a segment."""
    return f"{directory}/{segment_file(base, _SUFFIXES[kind])}"


def read_index(vfs: Vfs, directory: str, base: int, kind: IndexKind) -> bytes | None:
    """The bytes of an index file, or None when there is none."""
    return read_file(vfs, index_path(directory, base, kind), GIB)


def sealed_index(
    vfs: Vfs, directory: str, base: int, kind: IndexKind, log_size: int
) -> tuple[Int64s, Int64s] | None:
    """Both columns of a sealed index; None if it is missing, damaged or stale."""
    return parse_sealed(kind, read_index(vfs, directory, base, kind) or b"", log_size)


def has_sound_indexes(vfs: Vfs, directory: str, base: int, log_size: int) -> bool:
    """Whether all hints of a sealed segment can be used as they are."""
    indexes = all(sealed_index(vfs, directory, base, kind, log_size) for kind in _SUFFIXES)
    return indexes and (
        read_statistics(vfs, directory, base) is not None or not _is_typed(vfs, directory, base)
    )


def build_indexes(source: Source, base: int, interval: int) -> IndexBuilder:
    """Build a segment's indexes from its headers."""
    builder = IndexBuilder(interval)
    for frame in walk_frames(source, base, bodies=False):
        builder.add(frame.offset, frame.position, frame.header)
    return builder


def read_statistics(vfs: Vfs, directory: str, base: int) -> list[VersionStatistics] | None:
    """The statistics of a sealed segment; None if they are missing, damaged or stale."""
    data = read_file(vfs, _statistics_path(directory, base), _STATISTICS_BYTES)
    if data is None:
        return None
    with open_source(vfs, log_path(directory, base), HEADER_BYTES) as log:
        return segment_statistics.unpack(data, log)


def _is_typed(vfs: Vfs, directory: str, base: int) -> bool:
    """Whether the first or the last frame has rows of a typed topic."""
    with open_source(vfs, log_path(directory, base), HEADER_BYTES) as log:
        last = last_header(log)
        with suppress(BrokenFrameError):
            if unpack_header(log.read(0, HEADER_BYTES)).is_typed:
                return True
    return last is not None and last.is_typed


def _statistics_path(directory: str, base: int) -> str:
    return f"{directory}/{segment_file(base, STATS)}"


def _write_statistics(vfs: Vfs, directory: str, base: int, path: str) -> None:
    """Write the statistics of a typed log; none if it is damaged: then its readers must say so."""
    with open_source(vfs, path, _STATISTICS_WINDOW) as log:
        found = segment_statistics.gather(log, base)
        if found is not None:
            data = segment_statistics.pack(log, found)
            replace_file(vfs, _statistics_path(directory, base), data, sync=False)


def write_indexes(
    vfs: Vfs,
    directory: str,
    base: int,
    builder: IndexBuilder,
    log_size: int,
    path: str | None = None,
) -> None:
    """Write both sealed indexes and, for a typed topic, the statistics.

    Not synced: a torn file fails its checksum, and an old one does not fit another log.

    Args:
        vfs: The store's files.
        directory: Of the partition's segments.
        base: The segment.
        builder: Has seen every frame of it.
        log_size: Its size.
        path: The log, if it is not yet in its place.
    """
    offsets, times = builder.offset_index(), builder.time_index()
    entries = encode_entries(offsets.offsets, offsets.positions)
    data = seal("offset", entries, log_size)
    replace_file(vfs, index_path(directory, base, "offset"), data, sync=False)
    entries = encode_entries(times.timestamps, times.offsets)
    data = seal("time", entries, log_size)
    replace_file(vfs, index_path(directory, base, "time"), data, sync=False)
    if builder.is_typed:
        _write_statistics(vfs, directory, base, path or log_path(directory, base))


def rebuild_indexes(vfs: Vfs, directory: str, base: int, config: StoreConfig) -> None:
    """Write the indexes and statistics of a sealed segment again, from its frames."""
    source = MappedSource(vfs, log_path(directory, base))
    builder = build_indexes(source, base, config.index_interval_bytes)
    write_indexes(vfs, directory, base, builder, source.size)


def drop_indexes(vfs: Vfs, directory: str, base: int) -> None:
    """Remove a segment's indexes before its bytes: a stale entry would point into later bytes."""
    for suffix in HINTS:
        with suppress(FileNotFoundError):
            vfs.unlink(f"{directory}/{segment_file(base, suffix)}")
