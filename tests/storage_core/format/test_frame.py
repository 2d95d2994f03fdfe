"""The frame codec: its bytes, its limits, and that no damage passes."""

from __future__ import annotations

import struct

import crc32c
import numpy as np
import pyarrow as pa
import pytest

from storage_core.errors import BrokenFrameError
from storage_core.format.columns import Columns
from storage_core.format.frame import (
    HEADER_BYTES,
    EncodedFrame,
    FrameHeader,
    check_frame,
    decode_body,
    draft_frame,
    finish_frame,
    pack_header,
    unpack_header,
)
from tests.support.stores import T0, columns_of, flips, refused

ONE_VALUE = bytes.fromhex(
    "4352534601020001000000f80000000100000000000000000000000000000000"
    "00060a24181e400000060a24181e4000000000b0000000b0000000011d686e3e"
    "ffffffff9800000014000000000000000c0016000600050008000c000c000000"
    "0003040018000000100000000000000000000a0018000c00040008000a000000"
    "4c00000010000000010000000000000000000000030000000000000000000000"
    "0000000000000000000000000000000008000000000000000800000000000000"
    "0500000000000000000000000100000001000000000000000000000000000000"
    "000000000500000068656c6c6f000000450a5f4d000000f8"
)
"""One record ``hello`` stamped at T0, first of its segment."""

ALL_COLUMNS = bytes.fromhex(
    "43525346010f0000000002a80000000200000000000000050000000000000003"
    "00060a24181e400000060a24181e40010000026000000260000000023cf50266"
    "ffffffffd801000014000000000000000c0016000600050008000c000c000000"
    "0003040018000000800000000000000000000a0018000c00040008000a000000"
    "2c01000010000000020000000000000000000000110000000000000000000000"
    "0000000000000000000000000000000010000000000000001000000000000000"
    "000000000000000010000000000000000c000000000000002000000000000000"
    "0200000000000000280000000000000001000000000000003000000000000000"
    "0c00000000000000400000000000000001000000000000004800000000000000"
    "010000000000000050000000000000000c000000000000006000000000000000"
    "0000000000000000600000000000000000000000000000006000000000000000"
    "0800000000000000680000000000000001000000000000007000000000000000"
    "0000000000000000700000000000000008000000000000007800000000000000"
    "0100000000000000000000000700000002000000000000000000000000000000"
    "0200000000000000000000000000000002000000000000000100000000000000"
    "0200000000000000010000000000000001000000000000000000000000000000"
    "0100000000000000000000000000000001000000000000000000000000000000"
    "00401e18240a060001401e18240a060000000000010000000200000000000000"
    "6b6c000000000000010000000000000000000000010000000100000000000000"
    "6100000000000000020000000000000000000000000000000100000000000000"
    "0000000001000000680000000000000000000000010000007800000000000000"
    "7ee93689000002a8"
)
"""Two records with every column, relative offset 5, durable up to 3."""


def encode(columns: Columns, compression: str = "none") -> EncodedFrame:
    return finish_frame(
        draft_frame(columns, relative_offset=5, recovery_point=3, compression=compression, level=3)
    )


def joined(frame: EncodedFrame) -> bytes:
    return b"".join(bytes(buffer) for buffer in frame.buffers)


def decode(data: bytes) -> tuple[FrameHeader, pa.RecordBatch | None]:
    header = unpack_header(data)
    rest = pa.py_buffer(data[HEADER_BYTES:])
    check_frame(header, rest)
    return header, decode_body(header, rest)


def all_columns() -> Columns:
    return columns_of(
        [b"a", None],
        keys=[b"k", b"l"],
        timestamps=[T0, T0 + 1],
        headers=[None, {"h": b"x"}],
    )


def test_frame_of_one_value_has_these_bytes() -> None:
    frame = finish_frame(
        draft_frame(
            columns_of([b"hello"]), relative_offset=0, recovery_point=0, compression="none", level=3
        )
    )
    assert joined(frame).hex() == ONE_VALUE.hex()


def test_frame_with_every_column_has_these_bytes() -> None:
    data = joined(encode(all_columns()))
    assert data.hex() == ALL_COLUMNS.hex()


def test_golden_frame_decodes() -> None:
    header, batch = decode(ONE_VALUE)
    assert header == FrameHeader(
        columns=2,
        codec=0,
        timestamp_type=1,
        length=248,
        records=1,
        relative_offset=0,
        recovery_point=0,
        min_timestamp=T0,
        max_timestamp=T0,
        body_length=176,
        raw_length=176,
        span=1,
    )
    assert batch is not None
    assert batch.to_pylist() == [{"value": b"hello"}]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_column_survives_a_round_trip(compression: str) -> None:
    header, batch = decode(joined(encode(all_columns(), compression)))
    assert batch is not None
    assert batch.column("key").to_pylist() == [b"k", b"l"]
    assert batch.column("value").to_pylist() == [b"a", None]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [T0, T0 + 1]
    assert batch.column("headers").to_pylist() == [None, [{"key": "h", "value": b"x"}]]
    assert (header.records, header.relative_offset, header.recovery_point) == (2, 5, 3)


def test_frame_without_any_value_has_no_body() -> None:
    header, batch = decode(joined(encode(columns_of([None, None]))))
    assert batch is None
    assert (header.records, header.body_length) == (2, 0)


def test_frames_are_multiples_of_eight_bytes() -> None:
    for compression in ("none", "lz4", "zstd"):
        for size in range(20):
            frame = encode(columns_of([b"x" * size]), compression)
            assert len(joined(frame)) == frame.header.length
            assert frame.header.length % 8 == 0


def test_compression_makes_repetitive_bodies_smaller() -> None:
    columns = columns_of([b"the same again"] * 500)
    plain = encode(columns).header.length
    assert encode(columns, "lz4").header.length < plain / 4
    assert encode(columns, "zstd").header.length < plain / 4


@pytest.mark.row(16)
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_single_bit_flip_is_detected(compression: str) -> None:
    data = joined(encode(all_columns(), compression))
    for bit, flipped in flips(data):
        assert refused(BrokenFrameError, decode, flipped), bit


def test_every_truncation_is_detected() -> None:
    for size in range(len(ONE_VALUE)):
        with pytest.raises(BrokenFrameError):
            decode(ONE_VALUE[:size])


def header_with(**changes: int) -> bytes:
    return pack_header(unpack_header(ONE_VALUE)._replace(**changes))


@pytest.mark.row(23)
@pytest.mark.parametrize(
    "changes",
    [
        {"length": 256},
        {"body_length": 1 << 31, "raw_length": 1 << 31},
        {"body_length": (1 << 30) - 72, "raw_length": (1 << 30) - 72, "length": 1 << 30},
        {"raw_length": (1 << 32) - 1, "codec": 2},
        {"raw_length": 8},
        {"codec": 3},
        {"columns": 32},
        {"span": 0},
        {"records": 2},
    ],
)
def test_headers_with_a_valid_checksum_that_contradict_themselves_are_refused(
    changes: dict[str, int],
) -> None:
    with pytest.raises(BrokenFrameError):
        decode(header_with(**changes) + ONE_VALUE[HEADER_BYTES:])


def test_unknown_version_is_named() -> None:
    packed = bytearray(ONE_VALUE[:60])
    packed[4] = 9
    with pytest.raises(BrokenFrameError, match="version 1 or 2, found 9"):
        unpack_header(bytes(packed) + struct.pack(">I", crc32c.crc32c(bytes(packed))))


def with_body(body: bytes) -> bytes:
    """The golden frame with another body under valid checksums."""
    trailer = struct.pack(">II", crc32c.crc32c(body), len(body) + 72)
    header = header_with(length=len(body) + 72, body_length=len(body), raw_length=len(body))
    return header + body + trailer


@pytest.mark.row(24)
def test_body_with_hostile_contents_is_refused_not_believed() -> None:
    """A valid checksum does not make a body safe: no flip may crash, hang or grow the process."""
    body = ONE_VALUE[HEADER_BYTES:-8]
    for _, flipped in flips(body):
        try:
            _, batch = decode(with_body(flipped))
        except BrokenFrameError:
            continue
        assert batch is not None
        assert batch.num_rows == 1
        assert isinstance(batch.column(0)[0].as_py(), bytes | None)


@pytest.mark.row(24)
def test_offsets_that_point_outside_the_data_are_refused() -> None:
    body = bytearray(ONE_VALUE[HEADER_BYTES:-8])
    at = body.index(struct.pack("<ii", 0, 5))
    body[at : at + 8] = struct.pack("<ii", 0, 1 << 30)
    with pytest.raises(BrokenFrameError):
        decode(with_body(bytes(body)))


@pytest.mark.row(25)
def test_buffers_that_name_their_own_size_are_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"x" * 1000])})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    body = messages[1].serialize().to_pybytes()
    with pytest.raises(BrokenFrameError, match="compresses its buffers"):
        decode(with_body(body + bytes(-len(body) % 8)))


@pytest.mark.row(24)
def test_body_that_says_it_is_the_end_of_a_stream_is_refused() -> None:
    header = unpack_header(ONE_VALUE)
    body = bytearray(ONE_VALUE[HEADER_BYTES:])
    body[4:8] = bytes(4)
    with pytest.raises(BrokenFrameError, match="End of Arrow stream"):
        decode_body(header, pa.py_buffer(bytes(body)))


def test_timestamp_bounds_stand_in_the_header() -> None:
    stamps = np.array([T0 + 5, T0 - 7, T0])
    header = encode(columns_of([b"a", b"b", b"c"], timestamps=stamps.tolist())).header
    assert (header.min_timestamp, header.max_timestamp) == (T0 - 7, T0 + 5)
