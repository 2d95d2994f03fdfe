"""Transactions of the cursus broker: which records ``read_committed`` delivers.

A transaction is a pair of id and epoch. The broker appends its records with state ``open`` and,
after them, one control record with the marker ``commit`` or ``abort``; a journal holds what the
broker decided. With H the effective high watermark:

* ``marker`` of a transaction is its last control record below H, ``first`` its lowest open record;
* it is *unresolved* if it has no marker, or none after ``first``, or the journal contradicts that
  marker by holding this id and epoch in another state than the marker's;
* the last stable offset is the lowest ``first`` of an unresolved transaction, at most H;
* a record is visible if it lies below the last stable offset, is not a control record, and either
  has no transaction or is not ``aborted`` and has a later, uncontradicted ``commit``.

The journal, ``__transaction_state.journal``, is a sequence of ``u32 length, JSON, u32 CRC-32 of the
JSON``, big-endian; the last record of an id counts::

    00 00 00 44  {"version":1,"transaction":{"id":"t","epoch":0,"state":"committed"}}  crc
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import DamagedMetadataError
from ..types import Int64s
from .codecs.records import Bodies, Bools
from .codecs.rows import Data

Transaction = tuple[bytes, int]
"""Id and epoch."""

_DECIDED = {b"commit": "committed", b"abort": "aborted"}
_MAX_JOURNAL_RECORD = 32 << 20


class JournalState(NamedTuple):
    """What the journal last said about a transaction id."""

    epoch: int
    state: str


Journal = Mapping[bytes, JournalState]


class TransactionColumns(NamedTuple):
    """The fields that isolation looks at, one element per record."""

    offsets: Int64s
    ids: pa.BinaryArray
    epochs: Int64s
    states: pa.BinaryArray
    markers: pa.BinaryArray

    @classmethod
    def of(cls, data: pa.Buffer, bodies: Bodies) -> TransactionColumns:
        """The fields of parsed bodies."""
        ids, states, markers = (
            bodies.text(name).column(data) for name in ("txn_id", "txn_state", "txn_marker")
        )
        return cls(bodies.offsets, ids, bodies.number("epoch").astype(np.int64), states, markers)

    def filter(self, which: Bools) -> TransactionColumns:
        """The records ``which``."""
        mask = pa.array(which)
        return TransactionColumns(
            self.offsets[which],
            self.ids.filter(mask),
            self.epochs[which],
            self.states.filter(mask),
            self.markers.filter(mask),
        )

    def essential(self) -> TransactionColumns:
        """What a ``TransactionIndex`` looks at: control records, first open ones; offsets rise."""
        member = self.filter(_lengths(self.ids) > 0)
        control = _lengths(member.markers) > 0
        is_open = np.flatnonzero(_is_open(member, control))
        _, which = _transactions(member)
        _, first = np.unique(which[is_open], return_index=True)
        control[is_open[first]] = True
        return member.filter(control)


class Isolation(NamedTuple):
    """The outcome: the last stable offset, and where each committed transaction has its marker."""

    stable_end: int
    commits: Mapping[Transaction, int]

    def visible(self, columns: TransactionColumns) -> Bools:
        """Which records ``read_committed`` delivers."""
        shown: Bools = columns.offsets < self.stable_end
        shown &= _lengths(columns.markers) == 0
        member = _lengths(columns.ids) > 0
        if not member.any():
            return shown
        inside = columns.filter(member)
        names, which = _transactions(inside)
        commits = np.array([self.commits.get(name, -1) for name in names], dtype=np.int64)
        aborted = pc.equal(inside.states, b"aborted").to_numpy(zero_copy_only=False)
        shown[member] &= (commits[which] > inside.offsets) & ~aborted
        return shown


class TransactionIndex:
    """Gathers the transactions of a partition, chunk by chunk, in any order of chunks.

    Costs Python per transaction and chunk, not per record. Not thread-safe.
    """

    def __init__(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        self._first: dict[Transaction, int] = {}
        self._markers: dict[Transaction, tuple[int, bytes]] = {}

    def add(self, columns: TransactionColumns) -> None:
        """Take in records; those at or above the high watermark do not count."""
        counted = (columns.offsets < self._high_watermark) & (_lengths(columns.ids) > 0)
        if not counted.any():
            return
        inside = columns.filter(counted)
        names, which = _transactions(inside)
        control = _lengths(inside.markers) > 0
        is_open = _is_open(inside, control)
        first = np.full(len(names), self._high_watermark, dtype=np.int64)
        np.minimum.at(first, which[is_open], inside.offsets[is_open])
        for index in np.flatnonzero(first < self._high_watermark):
            name, offset = names[index], int(first[index])
            self._first[name] = min(offset, self._first.get(name, offset))
        for row in np.flatnonzero(control):
            name, offset = names[which[row]], int(inside.offsets[row])
            if offset >= self._markers.get(name, (-1, b""))[0]:
                self._markers[name] = (offset, inside.markers[row].as_py())

    def decide(self, journal: Journal) -> Isolation:
        """What is stable and what is committed, by the markers and the journal."""
        commits: dict[Transaction, int] = {}
        resolved: dict[Transaction, int] = {}
        for name, (offset, marker) in self._markers.items():
            if _contradicts(journal, name, marker):
                continue
            resolved[name] = offset
            if marker == b"commit":
                commits[name] = offset
        unresolved = (
            first for name, first in self._first.items() if resolved.get(name, -1) <= first
        )
        return Isolation(min(unresolved, default=self._high_watermark), commits)


def parse_journal(data: Data) -> dict[bytes, JournalState]:
    """The last state of every transaction id that the broker still uses.

    A last record that is cut short or fails its checksum is a torn tail, as it is for the broker.

    Raises:
        DamagedMetadataError: a record is damaged that is not the last one.
    """
    view, at, states = memoryview(data), 0, dict[bytes, JournalState]()
    while len(view) - at >= 4:
        (length,) = struct.unpack_from(">I", view, at)
        end = at + 8 + length
        if not 0 < length <= _MAX_JOURNAL_RECORD:
            if at + 4 == len(view):
                break
            raise _damaged(at, f"a length of {length}")
        if end > len(view):
            break
        text = bytes(view[at + 4 : end - 4])
        if zlib.crc32(text) != struct.unpack_from(">I", view, end - 4)[0]:
            if end == len(view):
                break
            raise _damaged(at, "a wrong checksum")
        _apply(states, text, at)
        at = end
    return states


def _apply(states: dict[bytes, JournalState], text: bytes, at: int) -> None:
    try:
        entry: dict[str, Any] = json.loads(text)["transaction"]
        name = str(entry["id"]).encode()
        # The broker keeps expired transactions for their epoch; their state no longer counts.
        if entry.get("expired"):
            states.pop(name, None)
        else:
            states[name] = JournalState(int(entry["epoch"]), str(entry["state"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(at, f"unexpected contents ({error!r})") from error


def _damaged(at: int, found: str) -> DamagedMetadataError:
    return DamagedMetadataError(
        f"the transaction journal has {found} at position {at}, and records after it. Restore "
        "it, or read with isolation read_uncommitted.",
        position=at,
    )


def _contradicts(journal: Journal, name: Transaction, marker: bytes) -> bool:
    known = journal.get(name[0])
    return known is not None and known.epoch == name[1] and known.state != _DECIDED.get(marker)


def _transactions(columns: TransactionColumns) -> tuple[list[Transaction], Int64s]:
    """The distinct transactions, and the index of each record's among them."""
    encoded = columns.ids.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    pairs = np.stack((codes, columns.epochs), axis=1)
    unique, which = np.unique(pairs, axis=0, return_inverse=True)
    ids = encoded.dictionary.to_pylist()
    return [(ids[code], int(epoch)) for code, epoch in unique], which.reshape(-1)


def _is_open(columns: TransactionColumns, control: Bools) -> Bools:
    is_open: Bools = pc.equal(columns.states, b"open").to_numpy(zero_copy_only=False)
    return is_open & ~control


def _lengths(column: pa.BinaryArray) -> Int64s:
    lengths: Int64s = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths
