"""Summaries of sealed row files: how many records, and where some of them start.

A sealed file is walked once. Its summary is kept in memory and, where the directory can be written,
under ``.cursus-spark/index/``: a broker's own files are never changed. A summary is a hint with a
checksum: a file of another size or time is walked again.

``index/<topic>-<partition>.rows``, big-endian: magic ``CRSN``, version u8, 3 zero bytes, number of
files u32, then per file: length of the name u16, name, size u64, time u64, records u64, end
position u64, number of entries u32, entries u64 each; at the end CRC32C u32 of all before.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ..errors import StorageError
from ..io.byte_source import MappedSource
from ..io.checksum import crc32c
from ..io.durable import read_file, replace_file
from ..io.locks import ensure_lock_file, locked
from ..layouts.broker_names import STATE_DIRECTORY
from ..types import Int64s
from ..vfs import Vfs
from .codecs.row_walk import walk_files
from .codecs.rows import Ending
from .layout import RowPartition

RECORDS_PER_ENTRY = 16
_FILES_AT_ONCE = 512
# Saving writes all of them. The next process may walk one part in four again.
_SAVED_PART = 4
_TRUSTED_US = 1_000_000
_HEAD = struct.Struct(">4sB3xI")
_FILE = struct.Struct(">QQQQI")
_MAGIC, _VERSION = b"CRSN", 1
_MAX_BYTES = 1 << 30


class Summary(NamedTuple):
    """One file: ``entries`` are the positions of records 0, 16, 32 … of its whole ``records``."""

    size: int
    modified_ns: int
    records: int
    end_position: int
    ending: Ending
    problem: str | None
    entries: Int64s


def pack(summaries: Mapping[str, Summary]) -> bytes:
    """The bytes of an index file; only files that end whole are remembered."""
    whole = {name: found for name, found in summaries.items() if found.ending is Ending.WHOLE}
    parts = [_HEAD.pack(_MAGIC, _VERSION, len(whole))]
    for name, found in sorted(whole.items()):
        encoded = name.encode()
        parts += [
            struct.pack(">H", len(encoded)),
            encoded,
            _FILE.pack(
                found.size,
                found.modified_ns,
                found.records,
                found.end_position,
                len(found.entries),
            ),
            found.entries.astype(">u8").tobytes(),
        ]
    data = b"".join(parts)
    return data + struct.pack(">I", crc32c(data))


def unpack(data: bytes) -> dict[str, Summary]:
    """The summaries in an index file; none when it cannot be trusted."""
    if len(data) < _HEAD.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return {}
    magic, version, count = _HEAD.unpack_from(data)
    if (magic, version) != (_MAGIC, _VERSION):
        return {}
    found: dict[str, Summary] = {}
    at = _HEAD.size
    with suppress(struct.error, ValueError):
        for _ in range(count):
            (length,) = struct.unpack_from(">H", data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            size, modified_ns, records, end, entries = _FILE.unpack_from(data, at)
            at += _FILE.size
            table = np.frombuffer(data, ">u8", entries, at).astype(np.int64)
            at += 8 * entries
            found[name] = Summary(size, modified_ns, records, end, Ending.WHOLE, None, table)
    return found


class Summaries:
    """Summaries of one partition's sealed files. Safe for several threads."""

    def __init__(self, of: RowPartition) -> None:
        self._vfs = of.vfs
        self._format = of.layout.format
        self._prefix = of.layout.prefix(of.topic, of.partition)
        self._path = f"{STATE_DIRECTORY}/index/{of.name}.rows"
        self._lock = threading.Lock()
        self._known: dict[str, Summary] | None = None
        self._unsaved = 0
        # The files that were last looked at together, and those that our writer ended since.
        self._looked_at: list[str] = []
        self._looked_us = 0
        self._is_ours = False

    def sealed(self, directory: str, names: Sequence[str]) -> dict[str, Summary]:
        """Summaries of these files, walking together those that are new or changed."""
        with self._lock:
            known = self._load()
            now = self._vfs.now_us()
            trusted = self._is_ours and names == self._looked_at
            trusted = trusted and 0 <= now - self._looked_us < _TRUSTED_US
            if not trusted:
                self._looked_at, self._looked_us, self._is_ours = list(names), now, False
            fresh = [
                name
                for name in names
                if not (name in known if trusted else self._is_current(directory, name))
            ]
            for start in range(0, len(fresh), _FILES_AT_ONCE):
                self._walk(directory, fresh[start : start + _FILES_AT_ONCE])
            self._unsaved += len(fresh)
            if self._unsaved * _SAVED_PART > len(known):
                self._save()
            return {name: known[name] for name in names if name in known}

    def note(self, name: str, found: Summary) -> None:
        """Know a file that our writer has just ended.

        While only our writer adds files, the look at all others after each one can wait a moment.
        """
        with self._lock:
            self._load()[name] = found
            self._unsaved += 1
            self._looked_at.append(name)
            self._is_ours = True

    def distrust(self) -> None:
        """Look at all files the next time: something is not as our writer left it."""
        with self._lock:
            self._looked_at, self._is_ours = [], False

    def _load(self) -> dict[str, Summary]:
        if self._known is None:
            self._known = unpack(read_file(self._vfs, self._path, _MAX_BYTES) or b"")
        return self._known

    def known(self, name: str) -> Summary | None:
        """What ``sealed`` last found of a file."""
        return (self._known or {}).get(name)

    def _is_current(self, directory: str, name: str) -> bool:
        known = (self._known or {}).get(name)
        stat = self._vfs.stat(f"{directory}/{name}")
        return (
            known is not None
            and stat is not None
            and (known.size, known.modified_ns) == (stat.size, stat.modified_ns)
        )

    def _walk(self, directory: str, names: Iterable[str]) -> None:
        stats = [(name, self._vfs.stat(f"{directory}/{name}")) for name in names]
        # A pipe or device has no size either, but opening it must fail: taken for an empty file,
        # it would give the records after it the offsets of the missing ones.
        filled = [
            (name, stat)
            for name, stat in stats
            if stat is not None and (stat.size or stat.kind != "file")
        ]
        sources = [MappedSource(self._vfs, f"{directory}/{name}") for name, _ in filled]
        datas = [source.read(0, source.size) for source in sources]
        counts = walk_files(datas, self._format, every=RECORDS_PER_ENTRY, prefix=self._prefix)
        assert self._known is not None
        for (name, stat), count in zip(filled, counts, strict=True):
            self._known[name] = Summary(
                stat.size,
                stat.modified_ns,
                count.records,
                count.end,
                count.ending,
                count.problem,
                count.entries,
            )
        none = np.empty(0, dtype=np.int64)
        for name, found in stats:
            if found is not None and not found.size and found.kind == "file":
                self._known[name] = Summary(0, found.modified_ns, 0, 0, Ending.WHOLE, None, none)

    def _save(self) -> None:
        """Keep the summaries for other processes; only in memory where we may not write."""
        assert self._known is not None
        save_hint(self._vfs, self._path, pack(self._known))
        self._unsaved = 0


def save_hint(vfs: Vfs, path: str, data: bytes) -> None:
    """Replace a file under ``index/`` without a sync; nothing where we may not write."""
    lock = f"{STATE_DIRECTORY}/index/lock"
    with suppress(OSError, StorageError):
        ensure_lock_file(vfs, lock)
        with locked(vfs, lock, 0):
            replace_file(vfs, path, data, sync=False)
