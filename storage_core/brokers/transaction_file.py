"""Transactions of closed files, remembered so that no process has to look for them again.

``index/<topic>-<partition>.txns`` is a metadata file (JSON with a checksum): per log file its size
and time, and per record that matters its offset, id, epoch, state and marker. It is a hint: a file
of another size or time is looked through again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..errors import DamagedMetadataError, StorageError
from ..io import json_files as metafile
from ..io.durable import replace_file
from ..io.locks import ensure_lock_file, locked
from ..layouts.broker_names import STATE_DIRECTORY
from ..vfs import Vfs
from .transactions import TransactionColumns

_FORMAT = 1
_MAX_ENTRIES = 100_000


class Remembered(NamedTuple):
    """What matters of the transactions in one file of this size and time."""

    size: int
    modified_ns: int
    found: tuple[TransactionColumns, ...]


class TransactionFile:
    """The remembered transactions of one partition. Not thread-safe."""

    def __init__(self, vfs: Vfs, topic: str, partition: int) -> None:
        self._vfs = vfs
        self._path = f"{STATE_DIRECTORY}/index/{topic}-{partition}.txns"
        self._known: dict[str, Remembered] | None = None

    def get(self, path: str) -> Remembered | None:
        """What is known of a log file."""
        if self._known is None:
            self._known = {}
            with suppress(DamagedMetadataError, KeyError, TypeError, ValueError, pa.ArrowException):
                fields = metafile.read(self._vfs, self._path) or {}
                if fields.get("format") == _FORMAT:
                    self._known = {name: _load(file) for name, file in fields["files"].items()}
        return self._known.get(path)

    def save(self, current: Mapping[str, Remembered]) -> None:
        """Remember these; in memory alone where we may not write or they are too many."""
        self._known = dict(current)
        if (
            sum(len(part.offsets) for file in current.values() for part in file.found)
            > _MAX_ENTRIES
        ):
            return
        lock = f"{STATE_DIRECTORY}/index/lock"
        files = {path: _dump(file) for path, file in current.items()}
        with suppress(OSError, StorageError):
            ensure_lock_file(self._vfs, lock)
            with locked(self._vfs, lock, 0):
                data = metafile.dump({"format": _FORMAT, "files": files})
                replace_file(self._vfs, self._path, data, sync=False)


def _dump(file: Remembered) -> dict[str, Any]:
    rows: list[Any] = []
    for part in file.found:
        texts = [part.ids, part.states, part.markers]
        columns = [[text.hex() for text in column.to_pylist()] for column in texts]
        rows += zip(part.offsets.tolist(), part.epochs.tolist(), *columns, strict=True)
    return {"size": file.size, "modified_ns": file.modified_ns, "rows": rows}


def _load(file: Mapping[str, Any]) -> Remembered:
    found: tuple[TransactionColumns, ...] = ()
    if file["rows"]:
        offsets, epochs, *texts = zip(*file["rows"], strict=True)
        ids, states, markers = (
            pa.array([bytes.fromhex(text) for text in column], pa.binary()) for column in texts
        )
        numbers = [np.array(column, dtype=np.int64) for column in (offsets, epochs)]
        found = (TransactionColumns(numbers[0], ids, numbers[1], states, markers),)
    return Remembered(int(file["size"]), int(file["modified_ns"]), found)
