"""Isolation: the rules of the broker, against the same rules written record by record."""

from __future__ import annotations

import json
import struct
import zlib
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core.brokers.codecs.encode import ABORT, encode_control, encode_messages
from storage_core.brokers.codecs.records import Bools, parse_bodies
from storage_core.brokers.codecs.rows import CURSUS_BROKER, walk_scalar
from storage_core.brokers.transactions import (
    Journal,
    JournalState,
    TransactionColumns,
    TransactionIndex,
    parse_journal,
)
from storage_core.errors import DamagedMetadataError
from storage_core.format.columns import HEADERS
from tests.support.sizes import examples


def visible_mask(
    columns: TransactionColumns, high_watermark: int, journal: Journal
) -> tuple[int, Bools]:
    """Last stable offset and visibility, where ``columns`` are all records of the partition."""
    index = TransactionIndex(high_watermark)
    index.add(columns)
    isolation = index.decide(journal)
    return isolation.stable_end, isolation.visible(columns)


class Row(NamedTuple):
    offset: int
    txn_id: bytes = b""
    epoch: int = 0
    state: bytes = b""
    marker: bytes = b""


def columns_of(rows: list[Row]) -> TransactionColumns:
    return TransactionColumns(
        np.array([row.offset for row in rows], dtype=np.int64),
        pa.array([row.txn_id for row in rows], pa.binary()),
        np.array([row.epoch for row in rows], dtype=np.int64),
        pa.array([row.state for row in rows], pa.binary()),
        pa.array([row.marker for row in rows], pa.binary()),
    )


def opened(offset: int, txn_id: bytes = b"t", epoch: int = 1) -> Row:
    return Row(offset, txn_id, epoch, b"open")


def control(offset: int, marker: bytes = b"commit", txn_id: bytes = b"t", epoch: int = 1) -> Row:
    state = b"committed" if marker == b"commit" else b"aborted"
    return Row(offset, txn_id, epoch, state, marker)


def plain(rows: list[Row], high: int, journal: dict[bytes, JournalState]) -> tuple[int, list[bool]]:
    """The rules read aloud."""
    markers: dict[tuple[bytes, int], Row] = {}
    first: dict[tuple[bytes, int], int] = {}
    for row in rows:
        name = (row.txn_id, row.epoch)
        if row.offset >= high or not row.txn_id:
            continue
        if row.marker:
            if name not in markers or row.offset >= markers[name].offset:
                markers[name] = row
        elif row.state == b"open":
            first[name] = min(row.offset, first.get(name, row.offset))

    def contradicted(name: tuple[bytes, int]) -> bool:
        known = journal.get(name[0])
        if known is None or known.epoch != name[1]:
            return False
        agreed = {b"commit": "committed", b"abort": "aborted"}.get(markers[name].marker)
        return known.state != agreed

    stable = high
    for name, offset in first.items():
        marker = markers.get(name)
        if marker is None or marker.offset <= offset or contradicted(name):
            stable = min(stable, offset)

    def visible(row: Row) -> bool:
        name = (row.txn_id, row.epoch)
        if row.offset >= stable or row.marker:
            return False
        if not row.txn_id:
            return True
        marker = markers.get(name)
        return (
            row.state != b"aborted"
            and marker is not None
            and marker.offset > row.offset
            and marker.marker == b"commit"
            and not contradicted(name)
        )

    return stable, [visible(row) for row in rows]


def outcome(
    rows: list[Row], high: int, journal: dict[bytes, JournalState] | None = None
) -> tuple[int, list[int]]:
    stable, mask = visible_mask(columns_of(rows), high, journal or {})
    return stable, [row.offset for row, shown in zip(rows, mask, strict=True) if shown]


def test_committed_transaction_is_delivered_without_its_control_record() -> None:
    assert outcome([Row(0), opened(1), opened(2), control(3), Row(4)], 5) == (5, [0, 1, 2, 4])


def test_open_transaction_holds_back_everything_after_it() -> None:
    assert outcome([Row(0), opened(1), Row(2)], 3) == (1, [0])


def test_marker_above_the_high_watermark_does_not_count() -> None:
    assert outcome([Row(0), opened(1), control(2)], 2) == (1, [0])


def test_marker_before_its_records_does_not_count() -> None:
    assert outcome([control(0), opened(1)], 2) == (1, [])


def test_aborted_transaction_is_skipped_and_holds_nothing_back() -> None:
    assert outcome([opened(0), control(1, b"abort"), Row(2)], 3) == (3, [2])
    assert outcome([Row(0, b"t", 1, b"aborted"), control(1), Row(2)], 3) == (3, [2])


def test_last_control_record_wins_and_of_two_at_one_offset_the_later_written() -> None:
    assert outcome([opened(0), control(1), control(2, b"abort"), Row(3)], 4) == (4, [3])
    assert outcome([opened(0), control(2, b"abort"), control(2), Row(3)], 4) == (4, [0, 3])


def test_epochs_are_transactions_of_their_own() -> None:
    rows = [opened(0, epoch=1), opened(1, epoch=2), control(2, epoch=2)]
    assert outcome(rows, 3) == (0, [])
    assert outcome([*rows, control(3, epoch=1)], 4) == (4, [0, 1])


def test_journal_contradicts_only_its_own_epoch() -> None:
    rows = [opened(0), control(1), Row(2)]
    assert outcome(rows, 3, {b"t": JournalState(1, "committing")}) == (0, [])
    assert outcome(rows, 3, {b"t": JournalState(1, "aborted")}) == (0, [])
    assert outcome(rows, 3, {b"t": JournalState(1, "committed")}) == (3, [0, 2])
    assert outcome(rows, 3, {b"t": JournalState(2, "open")}) == (3, [0, 2])
    assert outcome(rows, 3, {b"u": JournalState(1, "open")}) == (3, [0, 2])


def test_nothing_is_all_visible() -> None:
    assert outcome([], 0) == (0, [])
    assert outcome([Row(0), Row(1)], 1) == (1, [0])


ids = st.sampled_from([b"", b"t", b"u", "ż".encode()])
records = st.builds(
    Row,
    offset=st.integers(0, 12),
    txn_id=ids,
    epoch=st.integers(-1, 1),
    state=st.sampled_from([b"", b"open", b"open", b"committed", b"aborted"]),
    marker=st.sampled_from([b"", b"", b"", b"commit", b"abort", b"odd"]),
)
journals = st.dictionaries(
    ids,
    st.builds(
        JournalState,
        epoch=st.integers(-1, 1),
        state=st.sampled_from(["open", "committing", "committed", "aborted"]),
    ),
)


@settings(max_examples=examples(500))
@given(st.lists(records, max_size=16), st.integers(0, 14), journals, st.integers(0, 16))
def test_rules_hold_in_any_disorder_and_any_chunks(
    rows: list[Row], high: int, journal: dict[bytes, JournalState], cut: int
) -> None:
    stable, mask = visible_mask(columns_of(rows), high, journal)
    assert (stable, mask.tolist()) == plain(rows, high, journal)
    index = TransactionIndex(high)
    for chunk in (rows[:cut], rows[cut:]):
        index.add(columns_of(chunk))
    isolation = index.decide(journal)
    assert isolation.stable_end == stable
    again = [isolation.visible(columns_of(chunk)) for chunk in (rows[:cut], rows[cut:])]
    assert np.concatenate(again).tolist() == mask.tolist()


def test_what_we_encode_reads_as_transactions() -> None:
    headers = pa.array([[("txn_id", b"t"), ("epoch", b"4")], None], HEADERS)
    values = pa.array([b"in", b"out"])
    data = encode_messages(values, None, headers, topic="o", partition=0, first_offset=0).data
    for end, expected in (("", []), ("commit", [0, 1]), ("abort", [1])):
        marker = b""
        if end:
            kind = {"marker": ABORT} if end == "abort" else {}
            marker = encode_control(topic="o", partition=0, offset=2, txn_id="t", epoch=4, **kind)
        log = pa.py_buffer(data.to_pybytes() + marker)
        bodies = parse_bodies(log, walk_scalar(log, 0, len(log), CURSUS_BROKER))
        assert bodies.transactional
        stable, mask = visible_mask(TransactionColumns.of(log, bodies), bodies.count, {})
        assert (stable, np.flatnonzero(mask).tolist()) == (0 if not end else 3, expected)


def entry(name: str, epoch: int, state: str, **more: object) -> bytes:
    transaction = {"id": name, "producer": "p", "epoch": epoch, "state": state} | more
    text = json.dumps({"version": 1, "transaction": transaction}).encode()
    return struct.pack(">I", len(text)) + text + struct.pack(">I", zlib.crc32(text))


def test_last_record_of_an_id_wins() -> None:
    data = entry("t", 1, "open") + entry("ż", 0, "aborted") + entry("t", 1, "committed")
    assert parse_journal(data) == {
        b"t": JournalState(1, "committed"),
        "ż".encode(): JournalState(0, "aborted"),
    }
    assert parse_journal(data + entry("t", 1, "committed", expired=True)).keys() == {"ż".encode()}
    assert parse_journal(b"") == {}


def test_torn_tail_of_the_journal_is_its_end() -> None:
    whole, last = entry("t", 1, "open"), entry("t", 1, "committed")
    for cut in range(1, len(last) + 1):
        assert parse_journal(whole + last[:-cut]) == {b"t": JournalState(1, "open")}
    flipped = last[:-1] + bytes([last[-1] ^ 1])
    assert parse_journal(whole + flipped) == {b"t": JournalState(1, "open")}
    assert parse_journal(whole + bytes(4)) == {b"t": JournalState(1, "open")}


def test_damage_inside_the_journal_is_an_error() -> None:
    whole = entry("t", 1, "open")
    for broken in (whole[:-1] + bytes([whole[-1] ^ 1]), bytes(4)):
        with pytest.raises(DamagedMetadataError, match="journal") as caught:
            parse_journal(broken + whole)
        assert caught.value.position == 0
    text = b"[]"
    other = struct.pack(">I", 2) + text + struct.pack(">I", zlib.crc32(text))
    with pytest.raises(DamagedMetadataError, match="unexpected contents"):
        parse_journal(other)
