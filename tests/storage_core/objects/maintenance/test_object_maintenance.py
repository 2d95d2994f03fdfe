"""Maintenance of a store of objects: trims, rewrites, and what garbage collection deletes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.errors import (
    OffsetOutOfRangeError,
)
from storage_core.objects.engine import ObjectEngine
from tests.support.faulty_vfs import faulty
from tests.support.objects.object_stores import SCHEMA, later, make, on, staged
from tests.support.stores import T0, TOPIC, errors, offsets, rows, tree, values


def test_retention_and_deletion_are_trims(store: Store, tmp_path: Path) -> None:
    for number in range(4):
        stamp = T0 + number * 10**6
        store.append(TOPIC, 0, [b"%d" % number] * 2, timestamps=[stamp, stamp])
    reader = Store.open(tmp_path)
    batches = reader.read(TOPIC, 0)
    with pytest.raises(OffsetOutOfRangeError):
        store.delete_records(TOPIC, {0: 99})
    (report,) = store.delete_records(TOPIC, {0: 3})
    assert (report.start_offset, report.segments_before) == (3, 1)
    assert next(iter(rows(batches)))["offset"] == 0  # its data is still there
    assert offsets(reader) == [3, 4, 5, 6, 7]
    with pytest.raises(OffsetOutOfRangeError):
        reader.read(TOPIC, 0, start=2)
    store.alter_topic(TOPIC, retention_ms=1000)
    assert store.retain(dry_run=True) == {(TOPIC, 0): [3, 4]}
    assert store.retain() == {(TOPIC, 0): [3, 4]}
    assert store.offsets(TOPIC, 0).start == 6
    store.delete_records(TOPIC, {0: 8})
    assert (store.offsets(TOPIC, 0).start, values(store)) == (8, [])
    assert reader.append(TOPIC, 0, [b"next"]).start == 8
    assert store.scrub()[0].problems == ()


def test_small_slices_are_merged_and_recompressed(store: Store, tmp_path: Path) -> None:
    for number in range(12):
        store.append(TOPIC, 0, [b"%d" % number] * 5, keys=[b"k"] * 5)
    store.delete_records(TOPIC, {0: 3})
    reader = Store.open(tmp_path)
    before, planned = values(reader), reader.segments(TOPIC, 0)
    (report,) = store.merge(TOPIC, dry_run=True)
    assert (report.segments_before, report.segments_after, report.done) == (12, 1, False)
    (report,) = store.merge(TOPIC)
    assert (report.segments_before, report.segments_after, report.start_offset) == (12, 1, 3)
    (segment,) = store.segments(TOPIC, 0)
    assert (segment.base, segment.end) == (3, 60)
    assert values(store) == values(reader) == before
    assert store.merge(TOPIC) == []
    slices = [(each, each.base, each.end) for each in planned]
    assert [row["value"] for row in rows(reader.read_slices(TOPIC, 0, slices))] == before
    store.append(TOPIC, 0, [b"x" * 5000] * 3)
    saved = store.recompress(TOPIC, compression="zstd", dry_run=True)[0].saved_bytes
    assert saved > 0
    assert store.recompress(TOPIC, compression="zstd")[0].saved_bytes > 0
    assert store.recompress(TOPIC, compression="zstd") == []
    assert values(Store.open(tmp_path)) == [*before, *[b"x" * 5000] * 3]
    assert errors(store) == []


def test_a_rewrite_is_given_up_if_a_slice_is_gone(store: Store, tmp_path: Path) -> None:
    for number in range(4):
        store.append(TOPIC, 0, [b"%d" % number])
    other, done = Store.open(tmp_path), list[int]()

    def meanwhile(_: object) -> None:
        if not done:
            done.append(1)
            other.append(TOPIC, 0, [b"late"])
            other.delete_records(TOPIC, {0: 2})

    assert store.merge(TOPIC, progress=meanwhile) == []
    assert values(store) == [b"2", b"3", b"late"]
    assert store.merge(TOPIC)[0].segments_before == 3
    assert values(other) == [b"2", b"3", b"late"]


def test_typed_rows_are_merged_with_their_columns(tmp_path: Path) -> None:
    store = Store.open(tmp_path, layout="objects", create=True)
    store.create_topic("rows", schema=SCHEMA)
    for number in range(4):
        store.append_table("rows", pa.table({"id": [number], "name": [str(number)]}))
    store.alter_topic("rows", add_columns=pa.schema([pa.field("late", pa.string())]))
    store.append_table("rows", pa.table({"id": [4], "late": ["x"]}))
    before = store.scan("rows").to_table()
    assert store.merge("rows")[0].segments_before == 5
    assert Store.open(tmp_path).scan("rows").to_table() == before
    assert errors(store) == []


def test_garbage_is_deleted_and_live_data_stays(tmp_path: Path) -> None:
    make(tmp_path, 1).close()
    vfs = faulty(tmp_path)
    store = on(vfs)
    store.commit("kept", staged(store, "kept", {0: [b"a"]}))
    staged(store, "crashed", {0: [b"lost"]})
    store.create_topic("gone")
    store.delete_topic("gone")
    engine = store._engine
    assert isinstance(engine, ObjectEngine)
    assert store.collect_garbage() == (0, 0)
    later(vfs, 3)
    planned = engine._collector.collect(dry_run=True)
    assert any("/crashed/" in key for key in planned.keys)
    assert sum(key.startswith("logs/") for key in planned.keys) == 2
    count = (len(planned.keys), planned.size)
    assert store.collect_garbage(dry_run=True) == store.collect_garbage() == count
    assert store.collect_garbage() == (0, 0)
    assert values(store) == values(Store.open(tmp_path)) == [b"a"]
    assert "crashed" not in "".join(tree(tmp_path))
