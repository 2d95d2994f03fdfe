"""The index files of a segment: read, built from the log, written, removed."""

from __future__ import annotations

from contextlib import suppress

from ..config import GIB, StoreConfig
from ..format.file_names import IDX, TIMEIDX, segment_file
from ..format.frame_scan import walk_frames
from ..format.sparse_index import IndexBuilder, IndexKind, encode_entries, parse_sealed, seal
from ..io.byte_source import MappedSource, Source
from ..io.durable import read_file, replace_file
from ..types import Int64s
from ..vfs import Vfs
from .listing import log_path

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
    """Whether both index files of a sealed segment can be used as they are."""
    return all(sealed_index(vfs, directory, base, kind, log_size) for kind in _SUFFIXES)


def build_indexes(source: Source, base: int, interval: int) -> IndexBuilder:
    """Build a segment's indexes from its headers."""
    builder = IndexBuilder(interval)
    for frame in walk_frames(source, base, bodies=False):
        builder.add(frame.offset, frame.position, frame.header)
    return builder


def write_indexes(
    vfs: Vfs, directory: str, base: int, builder: IndexBuilder, log_size: int
) -> None:
    """Write both sealed indexes. Not synced: a torn one fails its checksum and is rebuilt."""
    offsets, times = builder.offset_index(), builder.time_index()
    entries = encode_entries(offsets.offsets, offsets.positions)
    data = seal("offset", entries, log_size)
    replace_file(vfs, index_path(directory, base, "offset"), data, sync=False)
    entries = encode_entries(times.timestamps, times.offsets)
    data = seal("time", entries, log_size)
    replace_file(vfs, index_path(directory, base, "time"), data, sync=False)


def rebuild_indexes(vfs: Vfs, directory: str, base: int, config: StoreConfig) -> None:
    """Write both indexes of a sealed segment again, from its headers."""
    source = MappedSource(vfs, log_path(directory, base))
    builder = build_indexes(source, base, config.index_interval_bytes)
    write_indexes(vfs, directory, base, builder, source.size)


def drop_indexes(vfs: Vfs, directory: str, base: int) -> None:
    """Remove a segment's indexes before its bytes: a stale entry would point into later bytes."""
    for kind in _SUFFIXES:
        with suppress(FileNotFoundError):
            vfs.unlink(index_path(directory, base, kind))
