"""Transactions of the cursus broker: what each isolation level delivers, and how far."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import DamagedMetadataError
from tests.support.brokers.broker_directories import BROKER, TOPIC, message, read
from tests.support.stores import overwrite


def member(offset: int, name: bytes, epoch: int = 1, state: bytes = b"open") -> bytes:
    return message(offset, b"%d" % offset, txn_id=name, epoch=epoch, txn_state=state)


def control(offset: int, name: bytes, marker: bytes = b"commit", epoch: int = 1) -> bytes:
    return message(
        offset,
        b"__cursus_txn_control_marker__",
        txn_id=name,
        epoch=epoch,
        txn_state=b"committed" if marker == b"commit" else b"aborted",
        txn_marker=marker,
        control_type=b"transaction",
        control_version=2,
        control_epoch=epoch,
    )


def plain(offset: int) -> bytes:
    return message(offset, b"%d" % offset)


def write(root: Path, *segments: tuple[int, list[bytes]]) -> None:
    for base, records in segments:
        file = BROKER.file(root, base)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(records))


def journal(root: Path, *states: tuple[str, int, str], torn: bytes = b"") -> Path:
    parts = []
    for name, epoch, state in states:
        entry = {"id": name, "producer": "p", "epoch": epoch, "revision": 1, "state": state}
        text = json.dumps({"version": 1, "transaction": entry}).encode()
        parts.append(struct.pack(">I", len(text)) + text + struct.pack(">I", zlib.crc32(text)))
    file = root / "__transaction_state.journal"
    file.write_bytes(b"".join(parts) + torn)
    return file


def seen(root: Path, isolation: str = "read_committed") -> tuple[list[int], int]:
    """Offsets delivered, and the high watermark; the same from a second store."""
    results = []
    for _ in range(2):
        store = Store.open(root, isolation=isolation)  # type: ignore[arg-type]
        found = read(store)
        assert found.error is None
        results.append((found.offsets, store.offsets(TOPIC, 0).end))
    assert results[0] == results[1]
    return results[0]


def test_committed_and_aborted(tmp_path: Path) -> None:
    write(
        tmp_path,
        (0, [plain(0), member(1, b"t"), member(2, b"a"), plain(3), control(4, b"t")]),
        (5, [control(5, b"a", b"abort"), member(6, b"t", 2), control(7, b"t", epoch=2), plain(8)]),
    )
    assert seen(tmp_path) == ([0, 1, 3, 6, 8], 9)
    assert seen(tmp_path, "read_uncommitted") == ([0, 1, 2, 3, 6, 8], 9)


def test_an_open_transaction_holds_back_everything_after_it(tmp_path: Path) -> None:
    write(tmp_path, (0, [plain(0), member(1, b"t"), plain(2)]), (3, [plain(3)]))
    assert seen(tmp_path) == ([0], 1)
    assert seen(tmp_path, "read_uncommitted") == ([0, 1, 2, 3], 4)


def test_a_commit_of_another_epoch_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, (0, [member(0, b"t"), control(1, b"t", epoch=2), plain(2)]))
    assert seen(tmp_path) == ([], 0)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("committed", ([0, 1, 3], 4)),
        ("committing", ([0], 1)),
        ("aborted", ([0], 1)),
        ("open", ([0], 1)),
    ],
)
def test_the_journal_may_contradict_a_marker(
    tmp_path: Path, state: str, expected: tuple[list[int], int]
) -> None:
    write(tmp_path, (0, [plain(0), member(1, b"t"), control(2, b"t"), plain(3)]))
    journal(tmp_path, ("t", 1, "open"), ("t", 1, state), ("other", 1, "open"), torn=b"\0\0\0\x63{")
    assert seen(tmp_path) == expected


def test_the_journal_of_another_epoch_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, (0, [member(0, b"t"), control(1, b"t")]))
    journal(tmp_path, ("t", 2, "open"))
    assert seen(tmp_path) == ([0], 2)


def test_a_damaged_journal_is_an_error_unless_nobody_asks(tmp_path: Path) -> None:
    write(tmp_path, (0, [member(0, b"t"), control(1, b"t")]))
    file = journal(tmp_path, ("t", 1, "committed"), ("u", 1, "committed"))

    def break_checksum(data: bytearray) -> None:
        data[20] ^= 1

    overwrite(file, break_checksum)
    with pytest.raises(DamagedMetadataError, match="read_uncommitted"):
        Store.open(tmp_path).offsets(TOPIC, 0)
    assert seen(tmp_path, "read_uncommitted") == ([0], 2)


def test_markers_above_the_watermark_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, (0, [plain(0), member(1, b"t"), plain(2), control(3, b"t"), plain(4)]))
    (tmp_path / TOPIC / "partition_0.hwm").write_bytes(b"3\n")
    assert seen(tmp_path) == ([0], 1)
    (tmp_path / TOPIC / "partition_0.hwm").write_bytes(b"4\n")
    assert seen(tmp_path) == ([0, 1, 2], 4)


def test_only_read_committed_stops_at_the_brokers_high_watermark(tmp_path: Path) -> None:
    write(tmp_path, (0, [plain(0), plain(1)]), (2, [plain(2), plain(3), plain(4)[:-1]]))
    (tmp_path / TOPIC / "partition_0.hwm").write_bytes(b"1\n")
    assert seen(tmp_path) == ([0], 1)
    assert seen(tmp_path, "read_uncommitted") == ([0, 1, 2, 3], 4)


def test_an_open_store_follows_the_transaction(tmp_path: Path) -> None:
    write(tmp_path, (0, [plain(0), member(1, b"t")]))
    store = Store.open(tmp_path)
    assert read(store).offsets == [0]
    file = BROKER.file(tmp_path, 0)
    with file.open("ab") as log:
        log.write(plain(2) + control(3, b"t")[:-1])
    assert read(store).offsets == [0]
    with file.open("ab") as log:
        log.write(control(3, b"t")[-1:])
    assert read(store).offsets == [0, 1, 2]
    write(tmp_path, (4, [member(4, b"u"), plain(5)]))
    assert read(store).offsets == [0, 1, 2]
    with BROKER.file(tmp_path, 4).open("ab") as log:
        log.write(control(6, b"u"))
    assert read(store).offsets == [0, 1, 2, 4, 5]


def test_remembered_transactions_are_only_a_hint(tmp_path: Path) -> None:
    write(
        tmp_path,
        (0, [member(0, b"t"), plain(1)]),
        (2, [control(2, b"t"), member(3, b"\xff\0u")]),
        (4, [control(4, b"\xff\0u", b"abort"), plain(5)]),
    )
    expected = ([0, 1, 5], 6)
    assert seen(tmp_path) == expected
    (kept,) = (tmp_path / ".cursus-spark" / "index").glob("*.txns")
    right = kept.read_bytes()
    for wrong in (b"", b"garbage", right[:-9], right.replace(b'"rows"', b'"cows"')):
        kept.write_bytes(wrong)
        assert seen(tmp_path) == expected
    first = BROKER.file(tmp_path, 0)
    first.write_bytes(first.read_bytes().replace(b"t", b"s"))
    assert seen(tmp_path) == ([], 0)


def test_many_transactions_over_many_chunks(tmp_path: Path) -> None:
    records, expected = [], []
    for number in range(3000):
        offset = 3 * number
        name = b"t%d" % number
        marker = b"abort" if number % 5 == 0 else b"commit"
        records += [member(offset, name), plain(offset + 1), control(offset + 2, name, marker)]
        expected += [offset + 1] if number % 5 == 0 else [offset, offset + 1]
    write(tmp_path, (0, records[:4000]), (4000, records[4000:]))
    assert seen(tmp_path) == (expected, 9000)


def test_records_we_write_under_a_transaction_are_committed(tmp_path: Path) -> None:
    write(tmp_path, (0, [plain(0)]))
    store = Store.open(tmp_path)
    headers = [{"txn_id": b"t", "epoch": b"4"}, None, {"txn_id": b"t", "epoch": b"4"}]
    written = store.append(TOPIC, 0, [b"1", b"2", b"3"], headers=headers)
    assert (written.start, written.end) == (1, 4)
    assert seen(tmp_path) == ([0, 1, 2, 3], 5)
    assert store.append(TOPIC, 0, [b"5"]).start == 5
