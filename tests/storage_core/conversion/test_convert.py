"""Conversions: every layout into every other, offsets kept or refused, resumed, compared."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage_core import Progress, Store, StoreConfig, convert
from storage_core.conversion.convert import _Conversion
from storage_core.conversion.topic_copy import CopyOptions
from storage_core.errors import (
    ConversionError,
    InvalidRecordError,
    LockTimeoutError,
    UnsupportedColumnError,
)
from tests.support.brokers.broker_directories import (
    BROKER,
    CURSUS,
    KINDS,
    RUSTLOG,
    TOPIC,
    Kind,
    details,
    message,
    read,
    snapshot,
)
from tests.support.processes import Processes
from tests.support.stores import T0, columns_of, errors, rows

LAYOUTS = ["native", "cursus", "cursus-broker", "rustlog"]
VALUES = [b"", "zażółć 🎉".encode(), *(b"%d" % at * (at % 50) for at in range(3000))]


def make(path: Path, layout: str, partitions: int = 2) -> Store:
    config = StoreConfig(segment_bytes=16 << 10)
    store = Store.open(path, layout=layout, create=True, config=config)
    store.create_topic(TOPIC, partitions)
    for first in range(0, len(VALUES), 500):
        store.append(TOPIC, 0, VALUES[first : first + 500])
    return store


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_every_layout_into_every_other(tmp_path: Path, source: str, target: str) -> None:
    make(tmp_path / "a", source).close()
    (first, second) = convert(tmp_path / "a", tmp_path / "b", layout=target)
    assert (first.topic, first.partition, first.copied) == (TOPIC, 0, len(VALUES))
    assert (len(first.offsets), second.copied) == (len(VALUES), 0)
    store = Store.open(tmp_path / "b")
    assert store.layout == target
    assert store.topic(TOPIC).partitions == 2
    assert read(store) == (list(enumerate(VALUES)), None)
    assert errors(store) == []
    assert [part.copied for part in convert(tmp_path / "a", store)] == [0, 0]


def test_native_keeps_every_column(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "a", create=True)
    store.create_topic(TOPIC, compression="zstd")
    headers = [[("a", b"1"), ("a", None)], None, []]
    given: dict[str, Any] = {"keys": [b"k", None, b""], "headers": headers}
    store.append(TOPIC, 0, [b"v", None, b""], timestamps=[T0, T0 + 5, T0 - 7], **given)
    store.append(TOPIC, 0, [b"stamped"])
    convert(store, tmp_path / "b")
    copy = Store.open(tmp_path / "b")
    assert rows(copy.read(TOPIC, 0)) == rows(store.read(TOPIC, 0))
    assert copy.topic(TOPIC).settings == {"compression": "zstd"}


def test_brokers_fields_survive_a_native_store(tmp_path: Path) -> None:
    data = b"".join(
        message(at, b"%d" % at, "BCDE"[at % 4], producer=b"p", seq=at, key=b"k" * (at % 3))
        for at in range(200)
    )
    file = BROKER.file(tmp_path / "a")
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    convert(tmp_path / "a", tmp_path / "b")
    convert(tmp_path / "b", tmp_path / "c", layout="cursus-broker", drop=["timestamp"])
    assert details(Store.open(tmp_path / "b")) == details(Store.open(tmp_path / "a"))
    assert details(Store.open(tmp_path / "c")) == details(Store.open(tmp_path / "a"))


def test_only_some_topics(tmp_path: Path) -> None:
    store = make(tmp_path / "a", "native")
    store.create_topic("other")
    convert(store, tmp_path / "b", topics=["other"])
    assert Store.open(tmp_path / "b").topics() == ["other"]


@pytest.mark.parametrize("target", ["native", "cursus-broker", "rustlog"])
def test_a_log_that_begins_later(tmp_path: Path, target: str) -> None:
    RUSTLOG.write(tmp_path / "a", [[b"a", b"b"], [b"c"]], first=1 << 40)
    convert(tmp_path / "a", tmp_path / "b", layout=target)
    store = Store.open(tmp_path / "b")
    assert read(store) == (
        [((1 << 40) + at, value) for at, value in enumerate([b"a", b"b", b"c"])],
        None,
    )
    assert store.offsets(TOPIC, 0).start == 1 << 40
    assert errors(store) == []
    assert store.append(TOPIC, 0, [b"d"]).start == (1 << 40) + 3
    assert read(Store.open(tmp_path / "b"), start=(1 << 40) + 2).values == [b"c", b"d"]


def holes(root: Path) -> list[int]:
    """A compacted log of the broker."""
    offsets = [at for at in range(1, 5000) if at % 7 and at % 11]
    data = b"".join(message(at, b"%d" % at) for at in offsets)
    file = BROKER.file(root)
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    file.with_name(f"{file.name}.compacted-{len(data)}").write_bytes(b"cursus-compaction-v1\n")
    BROKER.file(root, 6000).write_bytes(message(6000, b"6000"))
    return [*offsets, 6000]


def test_holes_are_kept_in_a_native_store(tmp_path: Path) -> None:
    offsets = holes(tmp_path / "a")
    small = StoreConfig(segment_bytes=8192, frame_records=100)
    convert(tmp_path / "a", tmp_path / "b", config=small)
    store = Store.open(tmp_path / "b")
    assert read(store) == ([(at, b"%d" % at) for at in offsets], None)
    assert len(store.segments(TOPIC, 0)) > 3
    assert errors(store) == []
    for start in (0, 1, 7, 8, 2500, 4999, 5000, 6000, 6001):
        if start >= store.offsets(TOPIC, 0).start:
            assert read(store, start=start).offsets == [at for at in offsets if at >= start]
    assert [part.copied for part in convert(tmp_path / "a", tmp_path / "b")] == [0]
    convert(tmp_path / "b", tmp_path / "c")
    assert read(Store.open(tmp_path / "c")).offsets == offsets


@pytest.mark.parametrize("target", ["cursus", "cursus-broker", "rustlog"])
def test_holes_are_refused_or_renumbered(tmp_path: Path, target: str) -> None:
    offsets = holes(tmp_path / "a")
    with pytest.raises(UnsupportedColumnError, match=f"layout {target} .*'offset'.*renumber"):
        convert(tmp_path / "a", tmp_path / "b", layout=target)
    assert read(Store.open(tmp_path / "b")).values == []
    convert(tmp_path / "a", tmp_path / "b", layout=target, renumber=True)
    assert read(Store.open(tmp_path / "b")) == (list(enumerate(b"%d" % at for at in offsets)), None)


def test_a_later_beginning_is_refused_by_cursus(tmp_path: Path) -> None:
    RUSTLOG.write(tmp_path / "a", [[b"a"]], first=3)
    with pytest.raises(UnsupportedColumnError, match="'offset'"):
        convert(tmp_path / "a", tmp_path / "b", layout="cursus")
    convert(tmp_path / "a", tmp_path / "b", layout="cursus", renumber=True)
    assert read(Store.open(tmp_path / "b")).records == [(0, b"a")]


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("key", {"keys": [b"k"]}),
        ("headers", {"headers": [{"a": b"b"}]}),
        ("timestamp", {"timestamps": [T0]}),
    ],
)
def test_what_cannot_be_stored_is_found_before_anything_is_copied(
    tmp_path: Path, column: str, given: dict[str, Any]
) -> None:
    store = make(tmp_path / "a", "native")
    store.append(TOPIC, 1, [b"x"], **given)
    with pytest.raises(UnsupportedColumnError, match=f"layout rustlog .*'{column}'"):
        convert(store, tmp_path / "b", layout="rustlog")
    assert Store.open(tmp_path / "b").visible_ends(TOPIC) == (0, 0)
    convert(store, tmp_path / "b", layout="rustlog", drop=[column])
    assert Store.open(tmp_path / "b").visible_ends(TOPIC) == (len(VALUES), 1)


def test_null_values_are_refused_by_rows(tmp_path: Path) -> None:
    store = make(tmp_path / "a", "native")
    store.append(TOPIC, 0, [None])
    with pytest.raises(InvalidRecordError, match="null"):
        convert(store, tmp_path / "b", layout="cursus")
    assert Store.open(tmp_path / "b").visible_ends(TOPIC) == (0, 0)


def test_only_columns_that_exist_can_be_dropped(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedColumnError, match="'value'"):
        convert(tmp_path, tmp_path / "b", drop=["value"])


def large(root: Path) -> list[bytes]:
    """Enough for several pieces of any conversion."""
    values = [os.urandom(1000) for _ in range(8000)]
    CURSUS.write(root, [values[first : first + 500] for first in range(0, 8000, 500)])
    return values


class _StopError(Exception):
    """The power was cut."""


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("renumber", [False, True])
def test_an_interrupted_conversion_goes_on(
    tmp_path: Path, target: str, renumber: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = importlib.import_module("storage_core.conversion.convert")
    monkeypatch.setattr(copying, "_PIECE_BYTES", 4096)
    expected = large(tmp_path / "a")
    steps: list[Progress] = []

    def stop_after(count: int) -> Any:
        def tell(progress: Progress) -> None:
            steps.append(progress)
            if sum(found.phase == "copy" for found in steps) == count:
                raise _StopError

        return tell

    for count in (1, 2):
        steps.clear()
        with pytest.raises(_StopError):
            convert(
                tmp_path / "a",
                tmp_path / "b",
                layout=target,
                renumber=renumber,
                progress=stop_after(count),
            )
    (part,) = convert(tmp_path / "a", tmp_path / "b", layout=target, renumber=renumber)
    assert 0 < part.copied < len(expected)
    assert read(Store.open(tmp_path / "b")) == (list(enumerate(expected)), None)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.parametrize("target", LAYOUTS)
def test_a_killed_conversion_goes_on(tmp_path: Path, processes: Processes, target: str) -> None:
    expected = large(tmp_path / "a")
    for lines in (1, 4):
        child = processes.start(
            "convert_slowly", tmp_path / "a", to=str(tmp_path / "b"), layout=target
        )
        for _ in range(lines):
            child.line()
        child.kill()
    convert(tmp_path / "a", tmp_path / "b", layout=target)
    assert read(Store.open(tmp_path / "b")) == (list(enumerate(expected)), None)


def test_records_of_a_killed_try_that_nobody_announced_are_found(tmp_path: Path) -> None:
    """A writer was killed before it published its frames: recovery shows them, and we go on."""
    make(tmp_path / "a", "rustlog").close()
    target = Store.open(tmp_path / "b", create=True)
    target.create_topic(TOPIC, 2)
    watermark = tmp_path / "b" / "topics" / TOPIC / "watermark"
    target.append(TOPIC, 0, VALUES[:5])
    shown = watermark.read_bytes()
    target.append(TOPIC, 0, VALUES[5:9])
    target.close()
    watermark.write_bytes(shown)
    (tmp_path / "b" / "topics" / TOPIC / "0" / "lock").write_bytes(b"")
    (first, _) = convert(tmp_path / "a", tmp_path / "b")
    assert first.copied == len(VALUES) - 9
    assert read(Store.open(tmp_path / "b")).values == VALUES


def test_a_source_that_grew_is_continued(tmp_path: Path) -> None:
    store = make(tmp_path / "a", "rustlog")
    convert(store, tmp_path / "b")
    store.append(TOPIC, 0, [b"more"])
    assert [part.copied for part in convert(store, tmp_path / "b")] == [1, 0]
    assert read(Store.open(tmp_path / "b")).values == [*VALUES, b"more"]


def test_nothing_is_copied_after_other_records(tmp_path: Path) -> None:
    store = make(tmp_path / "a", "cursus")
    other = Store.open(tmp_path / "b", create=True)
    other.create_topic(TOPIC)
    other.append(TOPIC, 0, [b"something else"])
    with pytest.raises(ConversionError, match="differs"):
        convert(store, other)
    with pytest.raises(ConversionError, match="did not come from this source"):
        convert(store, other, renumber=True)
    assert other.offsets(TOPIC, 0).end == 1
    other.append(TOPIC, 0, [b""] * 5000)
    with pytest.raises(ConversionError, match="the source at"):
        convert(store, other)


def test_what_was_changed_meanwhile_is_found_at_the_end(tmp_path: Path) -> None:
    store = make(tmp_path / "a", "cursus")
    convert(store, tmp_path / "b", layout="rustlog")
    file = RUSTLOG.file(tmp_path / "b")
    data = bytearray(file.read_bytes())
    data[data.index(b"149" * 3)] ^= 1
    file.write_bytes(data)
    with pytest.raises(ConversionError, match="record 151 "):
        convert(store, tmp_path / "b")


def test_progress_says_how_much_of_how_much(tmp_path: Path) -> None:
    store = make(tmp_path / "a", "cursus")
    store.append(TOPIC, 1, [b"x" * 1000] * 10)
    steps: list[Progress] = []
    convert(store, tmp_path / "b", layout="rustlog", progress=steps.append)
    size = sum(file.stat().st_size for file in (tmp_path / "a").rglob("*.log"))
    phases = ["check", "copy", "verify"]
    assert sorted({found.phase for found in steps}) == phases
    for phase in phases:
        of_phase = [found for found in steps if found.phase == phase]
        assert {(found.total_records, found.total_bytes) for found in of_phase} == {
            (len(VALUES) + 10, size)
        }
        done = [(found.records, found.bytes) for found in of_phase]
        assert done == sorted(done)
        assert done[-1] == (len(VALUES) + 10, size)


def test_two_conversions_into_one_target(tmp_path: Path) -> None:
    store = make(tmp_path / "a", "cursus")
    target = Store.open(tmp_path / "b", create=True)
    other = _Conversion(store, target, CopyOptions())
    with other.exclusive(), pytest.raises(LockTimeoutError):
        convert(store, target)
    convert(store, target)
    with pytest.raises(ConversionError, match="itself"):
        convert(store, tmp_path / "a")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_the_source_is_left_alone(tmp_path: Path, kind: Kind) -> None:
    kind.write(tmp_path / "a", [[b"a"], [b"b"]])
    before = snapshot(tmp_path / "a")
    convert(tmp_path / "a", tmp_path / "b")
    assert snapshot(tmp_path / "a") == before


def test_offsets_that_records_bring_must_follow(tmp_path: Path) -> None:
    store = make(tmp_path, "native")
    end = store.offsets(TOPIC, 0).end
    for wrong in ([end - 1, end], [end, end], [end + 1, end], [end, end + 2**32]):
        columns = replace(columns_of([b"a", b"b"]), offsets=np.array(wrong))
        with pytest.raises(InvalidRecordError, match="keep their offsets"):
            store.append_columns(TOPIC, 0, columns)
    assert store.offsets(TOPIC, 0).end == end
