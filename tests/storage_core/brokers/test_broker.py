"""Only the cursus broker has: forms, compaction, high watermarks, side files, an ordinal era."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from storage_core import OffsetRange, Store
from storage_core.errors import TopicNotFoundError, WriteFailedError
from tests.support.brokers.broker_directories import (
    BROKER,
    CURSUS,
    TOPIC,
    details,
    message,
    read,
    row,
)
from tests.support.brokers.broker_oracle import LAYOUT, ORDINAL, build
from tests.support.stores import errors

SIDECAR = b"cursus-compaction-v1\n"


def write(root: Path, base: int, data: bytes, suffix: str = ".log") -> Path:
    file = BROKER.file(root, base, suffix=suffix)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def hwm(root: Path, text: bytes) -> Path:
    file = root / TOPIC / "partition_0.hwm"
    file.write_bytes(text)
    return file


def test_every_form_in_one_file(tmp_path: Path) -> None:
    fields = {
        "producer": b"p",
        "seq": 2**64 - 1,
        "epoch": -5,
        "event_type": b"created",
        "schema_version": 3,
        "aggregate_version": 7,
        "metadata": b"{}",
        "key": b"k",
        "txn_id": b"",
    }
    data = b"".join(message(at, b"%d" % at, form, **fields) for at, form in enumerate("BCDEEDCB"))
    write(tmp_path, 0, data)
    head = [("producer", b"p"), ("seq", b"18446744073709551615"), ("epoch", b"-5")]
    event = [
        ("event_type", b"created"),
        ("schema_version", b"3"),
        ("aggregate_version", b"7"),
        ("metadata", b"{}"),
    ]
    expected = [
        (at, b"k" if form in "DE" else None, b"%d" % at, head + (event if form != "B" else []))
        for at, form in enumerate("BCDEEDCB")
    ]
    assert details(BROKER.open(tmp_path)) == expected


def test_bytes_after_the_last_field_are_ignored(tmp_path: Path) -> None:
    body = message(0, b"a")[4:] + b"more of a later version"
    write(tmp_path, 0, row(body) + message(1, b"b"))
    assert read(BROKER.open(tmp_path)).values == [b"a", b"b"]


def test_topic_and_partition_inside_the_records_do_not_matter(tmp_path: Path) -> None:
    write(tmp_path, 0, message(0, b"a", topic=b"elsewhere", partition=9))
    assert read(BROKER.open(tmp_path)).values == [b"a"]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"2\n", 2),
        (b"0\n", 0),
        (b"99\n", 4),
        (b"", 4),
        (b"two\n", 4),
        (b"-1\n", 4),
        (b"9" * 40, 4),
        (None, 4),
    ],
)
def test_the_high_watermark_bounds_what_is_visible(
    tmp_path: Path, text: bytes | None, end: int
) -> None:
    BROKER.write(tmp_path, [[b"a", b"b", b"c"], [b"d"]])
    if text is not None:
        hwm(tmp_path, text)
    store = BROKER.open(tmp_path)
    assert store.offsets(TOPIC, 0) == OffsetRange(0, end)
    assert read(store).offsets == list(range(end))
    uncommitted = Store.open(tmp_path, isolation="read_uncommitted")
    assert uncommitted.offsets(TOPIC, 0).end == 4


def test_damage_above_the_watermark_is_not_the_readers_business(tmp_path: Path) -> None:
    (file,) = BROKER.write(tmp_path, [[b"a", b"b"]])
    file.write_bytes(file.read_bytes() + b"\xff" * 9)
    hwm(tmp_path, b"1\n")
    store = BROKER.open(tmp_path)
    assert read(store) == ([(0, b"a")], None)
    assert len(errors(store)) == 1
    hwm(tmp_path, b"2\n")
    assert read(store).error is not None


def test_what_is_not_a_log_is_passed_over(tmp_path: Path) -> None:
    BROKER.write(tmp_path, [[b"a"], [b"b"]], first=5)
    folder = tmp_path / TOPIC
    for name in (
        "partition_0_segment_00000000000000000000.log.deleted",
        "partition_0_segment_00000000000000000000.index.deleted",
        "partition_0_segment_00000000000000000003.log.compacting",
        "partition_0_segment_00000000000000000003.index.compacting",
        "partition_0_segment_00000000000000000004.log.tmp",
        "partition_0.producers",
        "partition_0_segment_00000000000000000005.log.compacted-7",
        "partition_0_segment_99999999999999999999.log",
    ):
        (folder / name).write_bytes(b"\xff" * 7)
    side = folder / "partition_0"
    side.mkdir()
    for name in ("partition_0_stream.idx", "partition_0_stream_keys.dat"):
        (side / name).write_bytes(bytes(32))
    (tmp_path / "raft").mkdir()
    (tmp_path / "__consumer_metadata_migration.json").write_bytes(b"{}")
    store = BROKER.open(tmp_path)
    assert store.layout == "cursus-broker"
    assert read(store) == ([(5, b"a"), (6, b"b")], None)
    assert errors(store) == []


def test_topics_of_the_broker_itself_are_hidden_unless_asked_for(tmp_path: Path) -> None:
    BROKER.write(tmp_path, [[b"a"]])
    hidden = tmp_path / "__consumer_offsets" / "partition_3_segment_00000000000000000000.log"
    hidden.parent.mkdir()
    hidden.write_bytes(message(0, b"{}", topic=b"__consumer_offsets", partition=3))
    assert Store.open(tmp_path).topics() == [TOPIC]
    store = Store.open(tmp_path, internal_topics=True)
    assert store.topics() == ["__consumer_offsets", TOPIC]
    assert read(store, 3, "__consumer_offsets").values == [b"{}"]


def test_names_that_only_the_broker_allows(tmp_path: Path) -> None:
    folder = tmp_path / "day=1"
    folder.mkdir()
    (folder / "partition_0_segment_00000000000000000000.log").write_bytes(message(0, b"a"))
    store = Store.open(tmp_path)
    assert read(store, topic="day=1").values == [b"a"]
    with pytest.raises(TopicNotFoundError, match="day=1"):
        store.topic("../day=1")


def compacted(root: Path) -> bytes:
    """Three sealed segments, two of them compacted, and an active one."""
    kept = message(1, b"b", key=b"k1") + message(4, b"e", key=b"k2")
    file = write(root, 0, kept)
    file.with_name(f"{file.name}.compacted-{len(kept)}").write_bytes(SIDECAR)
    empty = write(root, 6, b"")
    empty.with_name(f"{empty.name}.compacted-0").write_bytes(SIDECAR)
    write(root, 9, message(9, b"j") + message(10, b"k"))
    write(root, 11, message(11, b"l"))
    return kept


def test_compacted_segments_have_holes(tmp_path: Path) -> None:
    compacted(tmp_path)
    store = BROKER.open(tmp_path)
    everything = [(1, b"b"), (4, b"e"), (9, b"j"), (10, b"k"), (11, b"l")]
    assert read(store) == (everything, None)
    assert store.offsets(TOPIC, 0) == OffsetRange(0, 12)
    for start in range(13):
        assert read(store, start=start).records == [r for r in everything if r[0] >= start]
    assert errors(store) == []


@pytest.mark.parametrize("wrong", ["size", "contents", "missing"])
def test_holes_without_a_valid_sidecar_are_damage(tmp_path: Path, wrong: str) -> None:
    kept = compacted(tmp_path)
    sidecar = next((tmp_path / TOPIC).glob(f"*0.log.compacted-{len(kept)}"))
    if wrong == "size":
        sidecar.rename(sidecar.with_name(f"{sidecar.name}0"))
    elif wrong == "contents":
        sidecar.write_bytes(b"cursus-compaction-v2\n")
    else:
        sidecar.unlink()
    found = read(BROKER.open(tmp_path))
    assert (found.records, found.error is None) == ([], False)
    assert read(BROKER.open(tmp_path), start=6).offsets == [9, 10, 11]


def test_a_compacted_segment_may_be_damaged_too(tmp_path: Path) -> None:
    kept = compacted(tmp_path)
    torn = kept + message(5, b"f")[:-2]
    file = write(tmp_path, 0, torn)
    file.with_name(f"{file.name}.compacted-{len(torn)}").write_bytes(SIDECAR)
    found = read(BROKER.open(tmp_path))
    assert found.offsets == [1, 4]
    assert found.error is not None
    assert (found.error.position, found.error.offset) == (len(kept), 5)
    falling = message(4, b"e") + message(1, b"b")
    file = write(tmp_path, 0, falling)
    file.with_name(f"{file.name}.compacted-{len(falling)}").write_bytes(SIDECAR)
    assert read(BROKER.open(tmp_path)).offsets == [4]


def test_a_compacted_index_is_exact_and_used(tmp_path: Path) -> None:
    offsets = list(range(0, 6000, 3))
    data, entries = b"", b""
    for at, offset in enumerate(offsets):
        if at % 20 == 0 and at:
            entries += struct.pack(">QQ", offset, len(data))
        data += message(offset, b"%d" % offset)
    file = write(tmp_path, 0, data)
    file.with_suffix(".index").write_bytes(entries)
    file.with_name(f"{file.name}.compacted-{len(data)}").write_bytes(SIDECAR)
    write(tmp_path, 6001, message(6001, b"last"))
    store = BROKER.open(tmp_path)
    assert read(store).offsets == [*offsets, 6001]
    assert read(store, start=2999, end=3010).offsets == [3000, 3003, 3006, 3009]


def ordinal_records() -> list[bytes]:
    fields = {"producer": b"p", "seq": 1, "payload": b"m", "key": b"k", "epoch": 2}
    routed = {"topic": TOPIC.encode(), "partition": 0, "offset": 77}
    inner = build(fields, ORDINAL)
    return [
        b"raw",
        inner,
        build({**routed, "payload": inner}, [*LAYOUT[:3], ("payload", "S")]),
        build({**routed, **fields, "payload": b"b"}, LAYOUT[:7]),
        b"",
    ]


def test_the_ordinal_era_with_its_layout_named(tmp_path: Path) -> None:
    CURSUS.write(tmp_path, [ordinal_records(), [b"second file"]])
    assert Store.open(tmp_path).layout == "cursus"
    store = Store.open(tmp_path, layout="cursus-broker")
    headers = [("producer", b"p"), ("seq", b"1"), ("epoch", b"2")]
    assert details(store) == [
        (0, None, b"raw", None),
        (1, b"k", b"m", headers),
        (2, b"k", b"m", headers),
        (3, None, b"b", headers),
        (4, None, b"", None),
        (5, None, b"second file", None),
    ]
    with pytest.raises(WriteFailedError, match="only read"):
        store.append(TOPIC, 0, [b"x"])


def test_the_ordinal_era_as_raw_payloads(tmp_path: Path) -> None:
    CURSUS.write(tmp_path, [ordinal_records()])
    assert read(Store.open(tmp_path)).values == ordinal_records()


@pytest.mark.parametrize("at", [1, 2, 3], ids=["M", "A", "B"])
def test_auto_recognises_the_messages_of_the_ordinal_era(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    body = ordinal_records()[at]
    CURSUS.write(tmp_path, [[], [body] * 3, [b"a raw payload of later"]])
    with caplog.at_level("WARNING", logger="storage_core"):
        stores = [Store.open(tmp_path) for _ in range(2)]
    assert [store.layout for store in stores] == ["cursus-broker"] * 2
    assert len(caplog.messages) == 1
    assert "cursus-broker" in caplog.text
    assert "layout=cursus" in caplog.text
    value = b"b" if at == 3 else b"m"
    assert read(stores[0]).values == [value] * 3 + [b"a raw payload of later"]
    assert read(Store.open(tmp_path, layout="cursus")).values[0] == body


def test_auto_recognises_a_large_first_message(tmp_path: Path) -> None:
    fields = {"producer": b"p", "seq": 1, "payload": b"m" * 200_000, "key": b"k", "epoch": 2}
    CURSUS.write(tmp_path, [[build(fields, ORDINAL)]])
    assert Store.open(tmp_path).layout == "cursus-broker"


@pytest.mark.parametrize("bodies", [[], [b""], [bytes(24)] * 9, [b"raw", "M"], ["M", b"raw"]])
def test_what_may_be_raw_payloads_is_not_taken_for_messages(
    tmp_path: Path, bodies: list[bytes | str]
) -> None:
    form_m = ordinal_records()[1]
    CURSUS.write(tmp_path, [[form_m if isinstance(body, str) else body for body in bodies]])
    assert Store.open(tmp_path).layout == "cursus"


def test_one_topic_of_raw_payloads_decides_for_all(tmp_path: Path) -> None:
    CURSUS.write(tmp_path, [[ordinal_records()[1]]])
    other = tmp_path / "payments" / "partition_0_segment_0.log"
    other.parent.mkdir()
    other.write_bytes(row(b"raw"))
    assert Store.open(tmp_path).layout == "cursus"
    other.write_bytes(row(b"raw")[:-1])
    assert Store.open(tmp_path).layout == "cursus-broker"
