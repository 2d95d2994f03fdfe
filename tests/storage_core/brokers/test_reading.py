"""Every layout, read as its broker left it: segments, rare payloads, torn tails, wrong indexes."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from storage_core import OffsetRange, Store, StoreConfig
from storage_core.brokers import segment_reader
from storage_core.errors import ConfigError, OffsetOutOfRangeError, StorageError
from tests.support.brokers.broker_directories import (
    BROKER,
    CURSUS,
    KINDS,
    RUSTLOG,
    TOPIC,
    Kind,
    read,
)
from tests.support.stores import errors

PAYLOADS = [b"Hello", b"", "zażółć 🎉".encode(), b"\0" * 40, b"x" * 3000, b"World!"]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


indexed = pytest.mark.parametrize("kind", [BROKER, RUSTLOG], ids=lambda kind: str(kind.name))


def test_several_segments_come_back_in_order(tmp_path: Path, kind: Kind) -> None:
    segments = [[b"%d-%d" % (number, at) for at in range(7)] for number in range(12)]
    kind.write(tmp_path, segments)
    store = kind.open(tmp_path)
    assert store.layout == kind.layout
    assert (store.topics(), store.topic(TOPIC).partitions) == ([TOPIC], 1)
    found = read(store)
    assert found.error is None
    assert found.values == [payload for payloads in segments for payload in payloads]
    assert found.offsets == list(range(84))
    assert errors(store) == []


def test_payloads_are_any_bytes(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [PAYLOADS, PAYLOADS])
    assert read(kind.open(tmp_path)).values == PAYLOADS * 2


def test_reads_start_and_stop_anywhere(tmp_path: Path, kind: Kind) -> None:
    values = [b"%d" % at for at in range(60)]
    kind.write(tmp_path, [values[:25], values[25:50], values[50:]])
    store = kind.open(tmp_path)
    for start in (0, 1, 24, 25, 26, 49, 50, 59, 60):
        for end in (start, start + 1, 25, 30, 60, None):
            assert read(store, start=start, end=end).values == values[start:end]
    assert read(store, start=24, max_records=3).values == values[24:27]
    with pytest.raises(OffsetOutOfRangeError):
        store.read(TOPIC, 0, start=61)


def test_torn_header_is_simply_the_end(tmp_path: Path, kind: Kind) -> None:
    for cut in range(1, kind.header):
        root = tmp_path / str(cut)
        *_, last = kind.write(root, [[b"a"], [b"b", b"c"]])
        last.write_bytes(last.read_bytes() + kind.encode([b"d"], 3)[:cut])
        store = kind.open(root)
        assert read(store) == ([(0, b"a"), (1, b"b"), (2, b"c")], None)
        assert errors(store) == []


def test_torn_payload_is_simply_the_end(tmp_path: Path, kind: Kind) -> None:
    *_, last = kind.write(tmp_path, [[b"a"], [b"b", b"c" * 50]])
    os.truncate(last, last.stat().st_size - 1)
    assert read(kind.open(tmp_path)) == ([(0, b"a"), (1, b"b")], None)


def test_empty_active_segment(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a", b"b"], []])
    store = kind.open(tmp_path)
    assert read(store).values == [b"a", b"b"]
    assert store.offsets(TOPIC, 0) == OffsetRange(0, 2)


def test_only_an_empty_file(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[]])
    store = kind.open(tmp_path)
    assert read(store) == ([], None)
    assert store.offsets(TOPIC, 0) == OffsetRange(0, 0)


def test_records_larger_than_any_buffer(tmp_path: Path, kind: Kind) -> None:
    values = [b"first", os.urandom(5 << 20), b"middle", os.urandom(9 << 20), b"last"]
    kind.write(tmp_path, [values, values[:2]])
    assert read(kind.open(tmp_path)).values == values + values[:2]


@pytest.mark.parametrize(
    ("kind", "most"), [(CURSUS, 64 << 20), (RUSTLOG, 10 << 20)], ids=["cursus", "rustlog"]
)
def test_largest_record_is_read_and_one_more_byte_is_damage(
    tmp_path: Path, kind: Kind, most: int
) -> None:
    kind.write(tmp_path / "a", [[b"a", bytes(most), b"b"]])
    assert [len(value) for value in read(kind.open(tmp_path / "a")).values] == [1, most, 1]
    kind.write(tmp_path / "b", [[b"a", bytes(most + 1), b"b"]])
    found = read(kind.open(tmp_path / "b"))
    assert found.values == [b"a"]
    assert found.error is not None
    assert (found.error.offset, found.error.position) == (1, kind.header + 1)


def test_largest_message_of_the_broker(tmp_path: Path) -> None:
    fits = (16 << 20) - len(BROKER.encode([b""], 0)) + 4
    BROKER.write(tmp_path / "a", [[b"a", bytes(fits), b"b"]])
    assert [len(value) for value in read(BROKER.open(tmp_path / "a")).values] == [1, fits, 1]
    BROKER.write(tmp_path / "b", [[b"a", bytes(fits + 1), b"b"]])
    found = read(BROKER.open(tmp_path / "b"))
    assert (found.values, found.error is None) == ([b"a"], False)


WrongIndex = Callable[[bytes], bytes]
INDEXES: dict[str, WrongIndex] = {
    "right": lambda index: index,
    "empty": lambda _: b"",
    "short": lambda index: index[: len(index) // 32 * 16],
    "uneven size": lambda index: index + b"\1\2\3",
    "zero-padded": lambda index: index + bytes(4096),
    "only zeros": lambda _: bytes(4096),
    "garbage": lambda index: bytes(range(256)) * (len(index) // 256 + 1),
    "stale": lambda index: b"".join(
        struct.pack(">QQ", offset + 3, position + 40)
        for offset, position in struct.iter_unpack(">QQ", index)
    ),
    "shifted positions": lambda index: b"".join(
        struct.pack(">QQ", offset, position + 1)
        for offset, position in struct.iter_unpack(">QQ", index)
    ),
    "wrong offsets": lambda index: b"".join(
        struct.pack(">QQ", offset + 1, position)
        for offset, position in struct.iter_unpack(">QQ", index)
    ),
    "falling": lambda index: index + index[:32],
    "before the base": lambda index: struct.pack(">QQ", 1, 17) + index[16:],
    "past the log": lambda index: index + struct.pack(">QQ", 1 << 40, 1 << 40),
    "huge": lambda _: b"\xff" * 64,
}


@indexed
@pytest.mark.parametrize("wrong", INDEXES)
@pytest.mark.parametrize("closed", [True, False])
def test_an_index_is_only_a_hint(tmp_path: Path, kind: Kind, wrong: str, closed: bool) -> None:
    values = [b"%05d" % at * (at % 9) for at in range(2000)]
    (file, *_) = kind.write(tmp_path, [values, [b"end"]] if closed else [values], first=1000)
    index = INDEXES[wrong](kind.index_of(values, 1000, 30))
    file.with_suffix(".index").write_bytes(index)
    if closed:
        values = [*values, b"end"]
    store = kind.open(tmp_path)
    assert read(store) == (list(enumerate(values, 1000)), None)
    for start in (0, 1, 29, 30, 31, 999, 1970, 1999):
        found = read(store, start=1000 + start, end=1010 + start)
        assert found.values == values[start : start + 10]


def test_an_index_entry_into_a_payload_that_looks_like_a_record(tmp_path: Path) -> None:
    inside = RUSTLOG.encode([b"no record"], 7)
    values = [b"a", inside, *[b"%d" % at for at in range(2, 20)]]
    (file,) = RUSTLOG.write(tmp_path, [values])
    entry = struct.pack(">QQQQ", 0, 0, 7, 13 + 12)
    file.with_suffix(".index").write_bytes(entry)
    assert read(RUSTLOG.open(tmp_path), start=7).values == values[7:]


def test_numeric_order_ten_after_nine(tmp_path: Path) -> None:
    CURSUS.write(tmp_path, [[b"%d" % number] for number in range(25)])
    assert read(CURSUS.open(tmp_path)).values == [b"%d" % number for number in range(25)]


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: str(kind.name))
def test_empty_segments_anywhere_and_oversize_ones(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[], [b"a" * (2 << 20)], [], [], [b"b"], []])
    store = kind.open(tmp_path)
    assert [len(value) for value in read(store).values] == [2 << 20, 1]
    assert read(store, start=1).values == [b"b"]
    assert [(found.base, found.end) for found in store.segments(TOPIC, 0)] == [(0, 1), (1, 2)]


def test_the_seeds_hex_examples_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / TOPIC
    folder.mkdir(parents=True)
    first = bytes.fromhex("00000005 48656c6c6f 00000006 576f726c6421")
    second = bytes.fromhex("0000000b 68656c6c6f20776f726c64 0000000b 616e6f74686572206d7367")
    (folder / "partition_0_segment_0.log").write_bytes(first)
    (folder / "partition_0_segment_1.log").write_bytes(second)
    store = CURSUS.open(tmp_path / "logs")
    assert read(store).values == [b"Hello", b"World!", b"hello world", b"another msg"]


def test_times_are_absent_and_asking_for_them_is_an_error(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path, [[b"a"], [b"b"]])
    store = kind.open(tmp_path)
    (batch,) = store.read(TOPIC, 0, columns=("timestamp", "timestamp_type", "key", "offset"))
    assert batch.to_pylist() == [
        {"timestamp": None, "timestamp_type": -1, "key": None, "offset": offset}
        for offset in range(2)
    ]
    with pytest.raises(ConfigError, match="stores no timestamps"):
        store.offset_for_timestamp(TOPIC, 0, 0)


def test_partitions_lie_side_by_side(tmp_path: Path, kind: Kind) -> None:
    for partition in (0, 2, 11):
        file = kind.file(tmp_path, 0, partition)
        file.parent.mkdir(parents=True, exist_ok=True)
        data = kind.encode([b"%d" % partition], 0)
        file.write_bytes(data)
    store = kind.open(tmp_path, config=StoreConfig())
    assert store.topic(TOPIC).partitions == 12
    assert [read(store, partition).values for partition in (0, 1, 2, 11)] == [
        [b"0"],
        [],
        [b"2"],
        [b"11"],
    ]
    assert store.visible_ends(TOPIC) == (1, 0, 1, *[0] * 8, 1)


@pytest.mark.parametrize("damage", ["none", "length", "offset", "torn"])
def test_what_is_walked_together_is_decoded_in_pieces(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    records = [bytes([i % 251]) * (i * 37 % 90 + 1) for i in range(3000)]
    kind.write(tmp_path, [records, [b"last"]])
    file = kind.file(tmp_path, 0)
    log = bytearray(file.read_bytes())
    places = {"length": len(log) // 2, "offset": 0, "torn": 0, "none": 0}
    if damage == "length":
        log[places["length"] : places["length"] + 40] = b"\xff" * 40
    elif damage == "torn":
        del log[-3:]
    elif damage == "offset":
        middle = kind.encode(records[:1500], 0)
        log[len(middle) + 4 : len(middle) + 12] = b"\x7f" * 8
    file.write_bytes(log)
    expected = outcome(kind.open(tmp_path))
    for most, walkers in ((512, 2048), (4096, 64), (1 << 20, 1)):
        monkeypatch.setattr(segment_reader, "_MOST_BYTES", most)
        monkeypatch.setattr(segment_reader, "_WALKERS", walkers)
        store = kind.open(tmp_path)
        assert outcome(store) == expected
        assert outcome(store, 700) == (expected[0][700:], expected[1])


def outcome(store: Store, start: int = 0) -> tuple[list[bytes | None], str | None]:
    """The values that a read delivers, and the error that ends it."""
    found: list[bytes | None] = []
    try:
        for batch in store.read(TOPIC, 0, start=start):
            found += batch.column("value").to_pylist()
    except StorageError as error:
        return found, str(error)
    return found, None
