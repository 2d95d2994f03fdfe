"""Sparse indexes of the brokers, as hints: the longest prefix that can be true.

Both brokers write 16-byte entries, big-endian:

====== ==== ==========================================
offset size field
====== ==== ==========================================
0      8    offset of a record
8      8    position of its length prefix in the log
====== ==== ==========================================

RustLog's entry for offset 100 at position 1530 is ``00…64 00…05 fa``, and the first one is
``(base, 0)``. The cursus broker never indexes the record at position 0 and fills the file up with
zeros, so there ``(0, 0)`` is the end.

Not guaranteed: nothing ties an index to its log, so it may be stale, short or garbage. Entries are
where ``row_walk.walk_indexed`` may try to start, never more than that.
"""

from __future__ import annotations

import numpy as np

from ...format.sparse_index import SparseIndex
from .rows import Data

ENTRY_BYTES = 16


def parse_broker_index(data: Data, log_size: int) -> SparseIndex:
    """The entries before the zeros, a pair that does not rise, or a position past the log."""
    entries = _rising_prefix(data, log_size)
    if len(entries.positions) and entries.positions[0] == 0:
        return SparseIndex(entries.offsets[:0], entries.positions[:0])
    return entries


def parse_rustlog_index(data: Data, log_size: int) -> SparseIndex:
    """The entries before a pair that does not rise, or a position past the log."""
    return _rising_prefix(data, log_size)


def encode_index(entries: SparseIndex) -> bytes:
    """The bytes of entries, for appending to either broker's index."""
    pairs = np.empty((len(entries.offsets), 2), dtype=">u8")
    pairs[:, 0], pairs[:, 1] = entries.offsets, entries.positions
    return pairs.tobytes()


def _rising_prefix(data: Data, log_size: int) -> SparseIndex:
    count = len(data) // ENTRY_BYTES
    pairs = np.frombuffer(data, dtype=">u8", count=2 * count).reshape(count, 2)
    # Signed, so that values no log can have turn negative and end the prefix.
    numbers = pairs.astype(np.int64)
    sound = (numbers >= 0).all(axis=1) & (numbers[:, 1] < log_size)
    sound[1:] &= (numbers[1:] > numbers[:-1]).all(axis=1)
    upto = count if sound.all() else int(np.argmin(sound))
    offsets, positions = np.ascontiguousarray(numbers[:upto].T)
    return SparseIndex(offsets, positions)
