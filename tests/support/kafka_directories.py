"""The log directories under ``tests/data/kafka``, and what Kafka's consumers got of them."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
