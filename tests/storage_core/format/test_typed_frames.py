"""Frames of typed topics: what is written comes back, and only what is wanted is decoded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage_core.config import CODECS
from storage_core.errors import BrokenFrameError, SchemaMismatchError
from storage_core.format.columns import Columns
from storage_core.format.frame import (
    HEADER_BYTES,
    EncodedFrame,
    check_frame,
    draft_frame,
    finish_frame,
    unpack_header,
)
from storage_core.format.frame_scan import read_frames, segment_frames
from storage_core.format.selection import SYSTEM_FIELDS, Projection, Selection
from storage_core.format.typed_body import PREAMBLE_BYTES
from storage_core.io.byte_source import open_source
from storage_core.predicate.binder import bind
from storage_core.predicate.bound import Bound
from storage_core.predicate.parser import parse
from storage_core.schema.conform import conform
from storage_core.schema.evolution import evolve
from storage_core.schema.fields import SchemaVersion, from_arrow
from storage_core.segments.batches import to_batch
from storage_core.types import OffsetPosition, TimeRange
from storage_core.vfs.posix import PosixVfs
from tests.support.stores import columns_of as stored_values
from tests.support.stores import flips, refused

# Names that the log uses for its own columns must not disturb those of a topic.
BATCH = pa.record_batch(
    {
        "offset": pa.array([None, None, None, None], pa.int64()),
        "timestamp": pa.array(["a", "b", None, "d"]),
        "offset_delta": pa.array([7, 8, 9, 10], pa.int32()),
        "tags": pa.array([["x"], [], None, ["y", "z"]], pa.list_(pa.string())),
    }
)
SCHEMA = SchemaVersion(1, from_arrow(BATCH.schema))
STAMPS = np.array([5, 4, 9, 7], dtype=np.int64)


class Versions:
    """Schema versions in memory."""

    def __init__(self, *versions: SchemaVersion) -> None:
        self._versions = {found.version: found for found in versions}

    def get(self, version: int) -> SchemaVersion:
        return self._versions[version]


class SmallNumbers:
    """A predicate: offset_delta is below 9."""

    columns = ("offset_delta",)

    def mask(self, columns: Any, rows: int) -> Any:
        assert rows
        return pa.array([number < 9 for number in columns["offset_delta"].to_pylist()])

    def may_match(self, statistics: Any, rows: int) -> bool:
        assert rows
        found = statistics["offset_delta"]
        return found is None or found.minimum < 9


def columns_of(batch: pa.RecordBatch, schema: SchemaVersion, stamps: Any) -> Columns:
    rows = conform(batch, schema)
    return Columns(rows.count, stamps, 0, None, None, None, rows.bounds, rows=rows)


def encoded(codec: str, batch: pa.RecordBatch = BATCH, **more: Any) -> EncodedFrame:
    draft = draft_frame(
        columns_of(batch, SCHEMA, STAMPS[-batch.num_rows :]),
        relative_offset=0,
        recovery_point=0,
        compression=codec,
        level=3,
        **more,
    )
    return finish_frame(draft)


def read(tmp_path: Path, frame: EncodedFrame, selection: Selection) -> list[pa.RecordBatch]:
    (tmp_path / "0.log").write_bytes(b"".join(frame.buffers))
    with open_source(PosixVfs(str(tmp_path)), "0.log", 1 << 20) as source:
        at = OffsetPosition(0, 0)
        found = read_frames(source, 0, at, start=0, end=frame.header.span, selection=selection)
        batches = [to_batch(each, selection, 0, frame.header.span) for each in found]
    return [batch for batch in batches if batch is not None]


def selecting(*names: str, schema: SchemaVersion = SCHEMA, **more: Any) -> Selection:
    projection = Projection(schema.names, Versions(SCHEMA, schema))
    return Selection(names, projection=projection, topic="t", partition=3, **more)


@pytest.mark.parametrize("codec", CODECS)
def test_rows_come_back(tmp_path: Path, codec: str) -> None:
    frame = encoded(codec)
    assert frame.header.is_typed
    assert frame.header.length == sum(map(len, frame.buffers))
    (batch,) = read(tmp_path, frame, selecting(*BATCH.schema.names))
    assert batch.equals(BATCH)
    (stored,) = segment_frames(PosixVfs(str(tmp_path)), "0.log", 0)
    columns = stored.columns(Versions(SCHEMA))
    assert columns.rows is not None
    assert columns.rows.to_batch().equals(BATCH)
    assert np.array_equal(columns.timestamps, STAMPS)


def test_columns_of_the_log(tmp_path: Path) -> None:
    frame = encoded("none", deltas=np.array([0, 2, 3, 6], dtype=np.int64), span=8)
    wanted = selecting("_offset", "_timestamp", "_partition", "_topic", "offset")
    (batch,) = read(tmp_path, frame, wanted)
    assert batch.column("_offset").to_pylist() == [0, 2, 3, 6]
    assert batch.column("_timestamp").cast(pa.int64()).to_pylist() == STAMPS.tolist()
    assert batch.column("_partition").to_pylist() == [3] * 4
    assert batch.column("_topic").to_pylist() == ["t"] * 4
    assert batch.column("offset").null_count == 4


def test_records_are_chosen_by_time_and_predicate(tmp_path: Path) -> None:
    wanted = selecting("timestamp", times=TimeRange(5, 10), where=SmallNumbers())
    (batch,) = read(tmp_path, encoded("zstd"), wanted)
    assert batch.schema.names == ["timestamp"]
    assert batch.column(0).to_pylist() == ["a"]
    assert (wanted.counts.read, wanted.counts.skipped) == (1, 0)
    assert read(tmp_path, encoded("zstd"), selecting("tags", times=TimeRange(10, 11))) == []


def test_statistics_skip_a_frame_whose_body_is_not_read(tmp_path: Path) -> None:
    frame = encoded("none", BATCH.slice(2, 2))
    wanted = selecting("tags", where=SmallNumbers())
    assert read(tmp_path, frame, wanted) == []
    assert wanted.counts.skipped == 1


def test_damaged_statistics_mean_that_the_frame_is_read_and_found_damaged(tmp_path: Path) -> None:
    frame = encoded("none", BATCH.slice(2, 2))
    data = bytearray(b"".join(frame.buffers))
    data[HEADER_BYTES + PREAMBLE_BYTES + 2] ^= 1
    damaged = EncodedFrame([bytes(data)], frame.header)
    with pytest.raises(BrokenFrameError, match="checksum"):
        read(tmp_path, damaged, selecting("tags", where=SmallNumbers()))


def test_an_older_frame_is_read_with_a_newer_schema(tmp_path: Path) -> None:
    wider = pa.schema(
        [
            pa.field("offset_delta", pa.int64()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.string()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("fresh", pa.float64()),
        ]
    )
    newer = evolve(SCHEMA, from_arrow(wider), add=True, widen=True, next_id=99, version=2)
    (batch,) = read(
        tmp_path, encoded("lz4"), selecting("fresh", "offset_delta", "timestamp", schema=newer)
    )
    assert batch.column("fresh").null_count == 4
    assert batch.column("offset_delta").equals(pa.array([7, 8, 9, 10], pa.int64()))


def where(text: str, *fields: pa.Field) -> Bound:
    return bind(parse(text), pa.schema([*fields, *SYSTEM_FIELDS.values()]))


@pytest.mark.parametrize(
    "text", ["_offset > 3", "_timestamp > TIMESTAMP'1970-01-02'", "_partition <> 3", "_topic = 'u'"]
)
def test_the_place_and_the_time_of_a_frame_skip_it(tmp_path: Path, text: str) -> None:
    wanted = selecting("tags", where=where(text))
    assert read(tmp_path, encoded("none"), wanted) == []
    assert (wanted.counts.read, wanted.counts.skipped) == (0, 1)
    records = finish_frame(
        draft_frame(
            stored_values([b"a", b"b"], timestamps=[1, 2]),
            relative_offset=0,
            recovery_point=0,
            compression="none",
            level=1,
        )
    )
    wanted = Selection(("value",), where=where(text), topic="t", partition=3)
    assert read(tmp_path, records, wanted) == []
    assert (wanted.counts.read, wanted.counts.skipped) == (0, 1)


def test_a_records_topic_has_the_columns_of_the_log_too(tmp_path: Path) -> None:
    place: dict[str, Any] = {"relative_offset": 0, "recovery_point": 0, "level": 1}
    for stamps in ([1, 2], [2, 2]):
        columns = stored_values([b"a", b"b"], timestamps=stamps)
        frame = finish_frame(draft_frame(columns, compression="none", **place))
        condition = where("_timestamp >= TIMESTAMP'1970-01-01 00:00:00.000002'")
        wanted = Selection(("_offset", "_timestamp", "value"), where=condition)
        (batch,) = read(tmp_path, frame, wanted)
        assert batch.column("_timestamp").cast(pa.int64()).to_pylist() == [
            t for t in stamps if t > 1
        ]
        assert batch.column("value").to_pylist() == [b"a", b"b"][-batch.num_rows :]


def test_a_frame_older_than_a_column_is_skipped_where_the_column_may_not_be_null(
    tmp_path: Path,
) -> None:
    fresh = pa.field("fresh", pa.float64())
    columns = from_arrow(pa.schema([*BATCH.schema, fresh]))
    newer = evolve(SCHEMA, columns, add=True, widen=False, next_id=99, version=2)
    wanted = selecting("tags", schema=newer, where=where("fresh > 0", fresh))
    assert read(tmp_path, encoded("none"), wanted) == []
    assert wanted.counts.skipped == 1
    wanted = selecting("tags", schema=newer, where=where("fresh is null", fresh))
    (batch,) = read(tmp_path, encoded("none"), wanted)
    assert batch.num_rows == 4


def test_a_value_that_an_older_schema_cannot_hold_is_an_error(tmp_path: Path) -> None:
    narrow = SchemaVersion(
        2,
        tuple(replace(f, type=pa.int8()) if f.name == "offset_delta" else f for f in SCHEMA.fields),
    )
    (batch,) = read(tmp_path, encoded("none"), selecting("offset_delta", schema=narrow))
    assert batch.column(0).equals(pa.array([7, 8, 9, 10], pa.int8()))
    large = BATCH.set_column(2, "offset_delta", pa.array([1, 2, 3, 1000], pa.int32()))
    with pytest.raises(SchemaMismatchError, match=r"offset_delta: found a value of .* not fit"):
        read(tmp_path, encoded("zstd", large), selecting("offset_delta", schema=narrow))


def test_offsets_that_do_not_rise_are_damage_with_a_place(tmp_path: Path) -> None:
    frame = encoded("none", deltas=np.array([0, 2, 1, 6], dtype=np.int64), span=8)
    with pytest.raises(BrokenFrameError, match="do not rise") as caught:
        read(tmp_path, frame, selecting("tags"))
    assert (caught.value.position, caught.value.offset) == (0, 0)


def test_each_kind_of_frame_is_refused_in_the_other_kind_of_topic(tmp_path: Path) -> None:
    value = pa.array([b"v"])
    records = Columns(1, 0, 0, None, value, None, np.array([0, 1]))
    place: dict[str, Any] = {"relative_offset": 0, "recovery_point": 0, "level": 1}
    frame = finish_frame(draft_frame(records, compression="none", **place))
    with pytest.raises(BrokenFrameError, match="expected rows of a typed topic"):
        read(tmp_path, frame, selecting("tags"))
    with pytest.raises(BrokenFrameError, match="expected records"):
        read(tmp_path, encoded("none"), Selection(("offset", "value")))


def test_times_are_found_without_a_schema(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, encoded("zstd"), Selection(("offset", "timestamp")))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == STAMPS.tolist()


def test_a_hole_without_rows_has_no_body(tmp_path: Path) -> None:
    rows = conform(BATCH.slice(0, 0), SCHEMA)
    nothing = Columns(0, 0, 0, None, None, None, rows.bounds, rows=rows)
    draft = draft_frame(
        nothing, relative_offset=0, recovery_point=0, compression="none", level=1, span=5
    )
    frame = finish_frame(draft)
    assert frame.header.span == 5
    assert read(tmp_path, frame, selecting("tags")) == []


@pytest.mark.row(16)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_single_bit_flip_of_a_typed_frame_is_detected(codec: str) -> None:
    data = b"".join(encoded(codec).buffers)

    def check(flipped: bytes) -> None:
        check_frame(unpack_header(flipped), memoryview(flipped)[HEADER_BYTES:])

    check(data)
    for bit, flipped in flips(data):
        assert refused(BrokenFrameError, check, flipped), bit
