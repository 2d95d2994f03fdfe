"""Record batches as Kafka's protocol has them, decoded many at a time."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage_core.brokers.codecs.rows import Ending
from storage_core.errors import BrokenFrameError
from storage_core.kafka.codecs import compression, record_walk
from storage_core.kafka.codecs import records as records_module
from storage_core.kafka.codecs.batches import Bounds, walk_batches
from storage_core.kafka.codecs.records import decode, decode_groups
from storage_core.kafka.codecs.varints import Varints, padded
from tests.support.brokers.kafka_encoder import (
    CODECS,
    Batch,
    Header,
    Record,
    compress,
    streamed,
    varint,
    xerial,
)

NO_HINTS = np.empty(0, dtype=np.int64)
NAMES = ("key", "value", "headers", "timestamp", "timestamp_type")
Row = tuple[Any, ...]


def decoded(data: bytes, hints: Sequence[int] = ()) -> list[Row]:
    """Offset, key, value, headers and milliseconds of all records."""
    walked = walk_batches(memoryview(data), np.array(hints, dtype=np.int64), Bounds(0))
    assert (walked.problem, walked.ending, walked.end) == (None, Ending.WHOLE, len(data))
    rows: list[Row] = []
    for found in decode_groups(memoryview(data), walked.batches):
        columns = found.columns(NAMES)
        for column in columns.values():
            column.validate(full=True)
        lists = [
            columns[name].to_pylist() if name in columns else [None] * found.count
            for name in ("key", "value", "headers")
        ]
        for offset, key, value, headers, time in zip(
            found.offsets.tolist(), *lists, found.milliseconds.tolist(), strict=True
        ):
            pairs = headers and [(each["key"], each["value"]) for each in headers]
            rows.append((offset, key, value, pairs, time))
    return rows


def expected(batches: Sequence[Batch]) -> list[Row]:
    return [
        (
            batch.base + delta,
            each.key,
            each.value,
            [(name, value) for name, value in each.headers] or None,
            each.time if batch.append_time is None else batch.append_time,
        )
        for batch in batches
        for delta, each in zip(batch.deltas(), batch.records, strict=True)
    ]


def random_records(rnd: random.Random, count: int) -> list[Record]:
    names: list[list[Header]] = [[], [], [("trace", b"\0\1"), ("", None)], [("é", b"")] * 3]
    return [
        Record(
            rnd.choice([None, b"", rnd.randbytes(rnd.choice([3, 90, 9000 if count < 50 else 40]))]),
            rnd.choice([None, b"key %d" % at]),
            rnd.choice(names),
            time=1_700_000_000_000 + rnd.choice([at, -at, 5_000_000_000]),
        )
        for at in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(2))
def test_every_field_of_every_record(codec: str, seed: int) -> None:
    rnd, batches, offset = random.Random(seed), list[Batch](), 7
    for count in rnd.choices([1, 2, 40, 700], k=12):
        stamp = rnd.choice([None, None, 1_600_000_000_000])
        batches.append(Batch(offset, random_records(rnd, count), codec, append_time=stamp))
        offset = batches[-1].last + 1 + rnd.choice([0, 0, 5])
    encoded = [batch.encode() for batch in batches]
    assert decoded(b"".join(encoded)) == expected(batches)
    hints = np.cumsum([len(each) for each in encoded]) + rnd.choice([0, 1])
    assert decoded(b"".join(encoded), hints.tolist()) == expected(batches)


def test_many_small_batches_are_walked_from_the_entries_of_an_index() -> None:
    rnd = random.Random(6)
    batches = [Batch(at, [Record(rnd.randbytes(rnd.randrange(90)))]) for at in range(3000)]
    encoded = [batch.encode() for batch in batches]
    starts = np.cumsum([len(each) for each in encoded])[:-1]
    for hints in (starts[::20], starts[::20] + 3, np.sort(rnd.sample(range(starts[-1]), 200))):
        assert decoded(b"".join(encoded), hints.tolist()) == expected(batches)


def test_codecs_may_differ_from_batch_to_batch() -> None:
    records = random_records(random.Random(1), 20)
    batches = [Batch(20 * at, records, codec) for at, codec in enumerate(CODECS * 3)]
    assert decoded(b"".join(batch.encode() for batch in batches)) == expected(batches)


@pytest.mark.parametrize("codec", CODECS)
def test_no_more_is_decompressed_at_once_than_needed(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some batches unpack to a thousand times their bytes: groups go by what they unpack to."""
    monkeypatch.setattr(records_module, "GROUP_BYTES", 20_000)
    batches = [Batch(at, [Record(bytes(3_000))] * 2, codec) for at in range(0, 60, 2)]
    data = b"".join(batch.encode() for batch in batches)
    assert decoded(data) == expected(batches)
    walked = walk_batches(memoryview(data), NO_HINTS, Bounds(0))
    found = list(decode_groups(memoryview(data), walked.batches))
    assert [each.count for each in found] == [8] * 7 + [4]


@pytest.mark.parametrize("codec", CODECS)
def test_the_batches_before_a_broken_one_are_decoded(codec: str) -> None:
    sound = [Batch(at, [Record(b"value"), Record(None)], codec) for at in range(0, 10, 2)]
    broken = Batch(10, [Record(b"a"), Record(b"b")], codec, payload=b"\x08\x00\x00\x00")
    data = b"".join(batch.encode() for batch in [*sound, broken])
    walked = walk_batches(memoryview(data), NO_HINTS, Bounds(0))
    assert len(walked.batches) == 6
    groups = decode_groups(memoryview(data), walked.batches)
    assert next(groups).offsets.tolist() == list(range(10))
    with pytest.raises(BrokenFrameError) as caught:
        next(groups)
    assert caught.value.position == int(walked.batches.positions[5])


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_of_several_broken_batches_is_named(codec: str) -> None:
    """A later one is noticed first: its records do not even follow each other."""
    sound = [Batch(at, [Record(b"value"), Record(None)], codec) for at in range(0, 10, 2)]
    body = b"\0\0\0" + varint(1) + b"k" + varint(50) + b"abc"
    first = Batch(10, [Record(b"a")], codec, payload=varint(len(body)) + body)
    second = Batch(14, [Record(b"a"), Record(b"b")], codec, payload=b"\x10\x00")
    batches = [*sound, first, Batch(11, [Record(b"c")] * 3, codec), second]
    data = b"".join(batch.encode() for batch in batches)
    walked = walk_batches(memoryview(data), NO_HINTS, Bounds(0))
    assert len(walked.batches) == 8
    groups = decode_groups(memoryview(data), walked.batches)
    assert next(groups).offsets.tolist() == list(range(10))
    with pytest.raises(BrokenFrameError) as caught:
        next(groups)
    assert (caught.value.position, caught.value.offset) == (int(walked.batches.positions[5]), 10)


def test_what_compaction_leaves_of_a_batch() -> None:
    kept = [Record(b"x", b"k", delta=delta) for delta in (1, 4, 7)]
    batches = [Batch(0, kept, last_delta=9), Batch(10, [], last_delta=4), Batch(15, kept)]
    rows = decoded(b"".join(batch.encode() for batch in batches))
    assert [row[0] for row in rows] == [1, 4, 7, 16, 19, 22]


def test_many_records_are_entered_at_several_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guesses hold: far fewer steps than a batch has records."""
    rnd, steps = random.Random(3), list[int]()
    records = [Record(rnd.randbytes(rnd.randrange(200)), time=at) for at in range(8_000)]
    in_order = record_walk._in_order

    def counted(each: Any, counts: Any) -> Any:
        steps.append(len(each))
        return in_order(each, counts)

    monkeypatch.setattr(record_walk, "_in_order", counted)
    batch = Batch(0, records)
    assert decoded(batch.encode()) == expected([batch])
    assert len(steps) == 1
    assert steps[0] < 800


@pytest.mark.parametrize("inner", [1, 30, 400])
def test_values_that_look_like_records_mislead_no_guess(inner: int) -> None:
    """A value may hold whole batches, as a mirror of a log does, or records of the same offsets."""
    small = Batch(0, [Record(b"v", b"k", time=5) for _ in range(inner)]).encode()
    records = [Record(small[61:], time=5) if at % 3 else Record(small) for at in range(500)]
    batch = Batch(0, records)
    assert decoded(batch.encode()) == expected([batch])


def test_a_header_name_that_is_not_utf8_is_shown_as_kafka_shows_it() -> None:
    data = Batch(0, [Record(b"v", headers=[(b"a\xffb", b"1")])]).encode()
    assert decoded(data)[0][3] == [("a�b", b"1")]


@pytest.mark.parametrize("number", [0, -1, 1, 63, 64, -64, -65, 8191, 8192, 1 << 20, -(1 << 62)])
def test_numbers_of_every_length(number: int) -> None:
    data = varint(number)
    values, after = Varints(padded(memoryview(data))).read(np.array([0]))
    assert (values.tolist(), after.tolist()) == ([number], [len(data)])


@pytest.mark.parametrize("magic", [0, 1])
def test_older_message_sets_are_refused_by_name(magic: int) -> None:
    data = Batch(0, [Record(b"v")], magic=magic).encode()
    walked = walk_batches(memoryview(data), NO_HINTS, Bounds(0))
    assert len(walked.batches) == 0
    assert f"magic {magic}, which brokers before Kafka 0.11 wrote" in str(walked.problem)
    short = (0).to_bytes(8, "big") + (14).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(9)
    walked = walk_batches(memoryview(short), NO_HINTS, Bounds(0))
    assert f"magic {magic}" in str(walked.problem)


def test_offsets_that_overlap_discredit_both_batches() -> None:
    batches = [Batch(0, [Record(b"a")] * 5), Batch(6, [Record(b"b")] * 5), Batch(10, [Record(b"")])]
    data = b"".join(batch.encode() for batch in batches)
    walked = walk_batches(memoryview(data), NO_HINTS, Bounds(0))
    assert (len(walked.batches), walked.ending) == (1, Ending.DAMAGED)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds(3), "offset 0, expected 3 or more"),
        (Bounds(0, limit=5), "ends with offset 9, expected less than 5"),
        (Bounds(0, edge=4), "high watermark 4 is inside"),
    ],
)
def test_offsets_must_keep_to_the_file(bounds: Bounds, words: str) -> None:
    data = Batch(0, [Record(b"v")] * 10).encode()
    assert words in str(walk_batches(memoryview(data), NO_HINTS, bounds).problem)


@pytest.mark.parametrize(
    ("codec", "payload", "words"),
    [
        ("snappy", varint(10**8) + b"abc", "cannot decompress to"),
        ("snappy", b"\x82SNAPPY\0" + bytes(8) + b"\0\0\1\0xx", "a snappy block of 256 bytes"),
        ("gzip", b"\x1f\x8b\x08" + bytes(30), "cannot be decompressed"),
        ("zstd", b"(\xb5/\xfd" + bytes(3), "cannot be decompressed"),
        ("lz4", bytes(20), "cannot be decompressed"),
    ],
)
def test_bytes_that_are_no_codecs(codec: str, payload: bytes, words: str) -> None:
    with pytest.raises(BrokenFrameError, match=words):
        compression.decompress(memoryview(payload), CODECS.index(codec))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_may_not_be_a_bomb(codec: str) -> None:
    data = bytes(4 << 20)
    packed = xerial(data) if codec == "snappy" else streamed(data, codec)
    with pytest.raises(BrokenFrameError, match="decompresses to more than"):
        compression.decompress(memoryview(packed), CODECS.index(codec), most=1 << 20)
    pieces = compression.decompress(memoryview(packed), CODECS.index(codec))
    assert b"".join(map(bytes, pieces)) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_streams_of_a_codec_may_follow_each_other(codec: str) -> None:
    """As Java's streams read them."""
    parts = [b"first " * 9, b"second " * 5]
    packed = b"".join(compress(part, codec) for part in parts)
    found = compression.decompress(memoryview(packed), CODECS.index(codec))
    assert b"".join(map(bytes, found)) == b"".join(parts)


def test_snappy_without_framing_is_one_block() -> None:
    packed: bytes = pa.compress(b"abc" * 100, "snappy", asbytes=True)
    (piece,) = compression.decompress(memoryview(packed), CODECS.index("snappy"))
    assert bytes(piece) == b"abc" * 100


def test_a_checksum_does_not_make_a_record_sound() -> None:
    """Whatever a writer put under a right checksum, nothing outside the batch is read."""
    rnd = random.Random(5)
    good = Batch(0, random_records(rnd, 30)).encode()[61:]
    for _ in range(120):
        wrong = bytearray(good)
        for _ in range(rnd.choice([1, 1, 4])):
            wrong[rnd.randrange(len(wrong))] = rnd.choice([0, 1, 0x7F, 0x80, 0xFF])
        data = Batch(0, [Record(b"")] * 30, payload=bytes(wrong)).encode()
        walked = walk_batches(memoryview(data), NO_HINTS, Bounds(0))
        assert walked.problem is None
        try:
            found = decode(memoryview(data), walked.batches)
            for column in found.columns(NAMES).values():
                column.validate(full=True)
        except BrokenFrameError:
            continue
        assert found.count == 30


@pytest.mark.parametrize("length", [(1 << 63) - 1, (1 << 62) + 5, 1 << 31, -1, -(1 << 62)])
def test_no_length_leads_out_of_a_batch(length: int) -> None:
    data = Batch(0, [Record(b"")] * 3, payload=varint(length) + bytes(40)).encode()
    walked = walk_batches(memoryview(data), NO_HINTS, Bounds(0))
    with pytest.raises(BrokenFrameError, match="expected 3 records"):
        decode(memoryview(data), walked.batches)


def test_a_claimed_number_of_records_takes_no_memory() -> None:
    """The header of a compressed batch claims two billion records; its body has room for nine."""
    body = varint(6) + bytes(62)
    numbers = Varints(padded(memoryview(body)))
    areas = record_walk.Areas(np.array([0]), np.array([len(body)]), np.array([(1 << 31) - 1]))
    tracemalloc.start()
    try:
        positions, sound = record_walk.walk_records(numbers, areas)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not sound.any()
    assert len(positions) == 0
    assert peak < 1 << 20
