"""The log directories under ``tests/data/kafka``, and what Kafka's consumers got of them."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from storage_core import Store
from storage_core.types import IsolationLevel
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data" / "kafka"
EXPECTED = "expected.json"
CASES = sorted(it.name for it in DATA.iterdir() if it.is_dir())
INDEX_BYTES = 10 << 20
"""The size of the indexes of an active segment by default; the data have them trimmed."""


class Record(NamedTuple):
    """A record as a consumer gets it. The type of its timestamp is CreateTime or LogAppendTime."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Seen(NamedTuple):
    """What a consumer gets of a topic-partition between its first offset and its end."""

    start: int
    end: int
    records: list[Record]


class Partition(NamedTuple):
    """A topic-partition of a case. ``in_file`` is the high watermark in the broker's file."""

    topic: str
    number: int
    in_file: int | None
    uncommitted: Seen
    committed: Seen

    def seen(self, isolation: str) -> Seen:
        return self.committed if isolation == "read_committed" else self.uncommitted


def partitions(case: str | Path) -> Iterator[Partition]:
    """All topic-partitions of a case, or of another directory with its ``expected.json``."""
    root = DATA / case
    expected = json.loads((root / EXPECTED).read_text())
    lines = (root / "replication-offset-checkpoint").read_text().splitlines()[2:]
    ends = {(topic, int(at)): int(end) for topic, at, end in map(str.split, lines)}
    for it in expected["partitions"].values():
        everything = [_record(each) for each in it["records"]]
        bounds = [(it[level]["start"], it[level]["end"]) for level in _LEVELS]
        chosen = set(it["read_committed"]["offsets"])
        committed = [each for each in everything if each.offset in chosen]
        uncommitted = Seen(*bounds[0], everything)
        at_end = ends.get((it["topic"], it["partition"]))
        yield Partition(
            it["topic"], it["partition"], at_end, uncommitted, Seen(*bounds[1], committed)
        )


_LEVELS = ("read_uncommitted", "read_committed")


def copied(case: str, directory: Path) -> Path:
    """A copy of a case that a test may change."""
    copy = directory / case
    shutil.copytree(DATA / case, copy)
    return copy


def preallocate(root: Path) -> None:
    """Give indexes and preallocated logs the sizes they had on the broker's disk, with holes."""
    for file in root.rglob("*"):
        if file.suffix in (".index", ".timeindex"):
            _extend(file, INDEX_BYTES // 12 * 12 if file.suffix == ".timeindex" else INDEX_BYTES)
        elif file.suffix == ".log" and file.read_bytes().endswith(bytes(4096)):
            _extend(file, 1 << 20)


def _extend(file: Path, size: int) -> None:
    with file.open("r+b") as it:
        it.truncate(size)


def _record(found: dict[str, Any]) -> Record:
    headers = tuple((name, _bytes(value)) for name, value in found["headers"])
    return Record(
        found["offset"],
        found["timestamp"],
        found["timestampType"],
        _bytes(found["key"]),
        _bytes(found["value"]),
        headers,
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")


def as_records(batches: Iterable[pa.RecordBatch]) -> list[Record]:
    """What a read gave, record by record."""
    found = []
    for batch in batches:
        batch.validate(full=True)
        times = batch["timestamp"].cast("int64").to_pylist()
        for row, micros in zip(batch.to_pylist(), times, strict=True):
            headers = tuple((it["key"], it["value"]) for it in row["headers"] or ())
            kind = _TYPES[row["timestamp_type"]]
            millis, rest = divmod(micros, 1000)
            assert rest == 0
            found.append(Record(row["offset"], millis, kind, row["key"], row["value"], headers))
    return found


def read(store: Store, topic: str, partition: int, **bounds: Any) -> list[Record]:
    """All records of a topic-partition with all columns."""
    return as_records(store.read(topic, partition, columns=_COLUMNS, **bounds))


def compare(root: Path, isolation: IsolationLevel) -> None:
    """Every record of a directory, and where reads end, are as consumers saw them.

    Under ``log_end`` all uncommitted records, otherwise up to the high watermark in the file.
    """
    listed = list(partitions(root))
    with Store.open(root, layout="kafka", isolation=isolation) as store:
        assert store.topics() == sorted({it.topic for it in listed})
        for it in listed:
            seen = it.committed if isolation == "read_committed" else it.uncommitted
            end = seen.end
            if isolation != "log_end":
                end = max(seen.start, min(end, it.in_file or 0))
            where = (isolation, it.topic, it.number)
            offsets = store.offsets(it.topic, it.number)
            assert (where, offsets.start, offsets.end) == (where, seen.start, end)
            expected = [each for each in seen.records if each.offset < end]
            assert (where, read(store, it.topic, it.number)) == (where, expected)
