"""The stream source called as Spark calls it, trigger by trigger, without a JVM.

It does what the engine's source does with offsets: keeps them as JSON text, compares them as text,
asks for the initial one more often than needed, and plans a logged batch again after a restart.
Batches that it gets with a plan are kept by their offsets; here they must be what tasks would read.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from cursus_spark.compat import ReadAllAvailable, prefetching_class
from cursus_spark.datasource import CursusDataSource
from cursus_spark.stream.reader import CursusStreamReader

TOPIC = "orders"


class MicroBatches:
    """One query: its checkpoint is ``offsets`` and ``committed``, and outlives ``restart``."""

    def __init__(self, path: Path, topic: str | None = TOPIC, **options: Any) -> None:
        named = {} if topic is None else {"subscribe": topic}
        self._options = {"path": str(path), "startingOffsets": "earliest", **named, **options}
        self.offsets: list[str] = []
        self.committed = 0
        self.handed_over = 0
        self.reader = self._start()

    def _start(self) -> CursusStreamReader:
        source = CursusDataSource({name: str(text) for name, text in self._options.items()})
        schema: StructType = source.schema()
        self._handed_over = ("", "", list[dict[str, Any]]())
        reader = source.streamReader(schema)
        if not isinstance(reader, CursusStreamReader):
            reader.initialOffset()  # says why not
        assert isinstance(reader, CursusStreamReader)
        reader.hands_over = prefetching_class() is not None
        return reader

    def restart(self, **options: Any) -> MicroBatches:
        """Another process takes the query over, perhaps with changed options."""
        self._options |= options
        if {"subscribePattern", "assign"} & set(options):
            del self._options["subscribe"]
        self.reader = self._start()
        return self

    def available_now(self) -> MicroBatches:
        """Run under ``Trigger.AvailableNow`` from here on."""
        self.reader.prepareForTriggerAvailableNow()
        return self

    def plan_next(self, *, everything: bool = False) -> bool:
        """Log the end of the next batch; False if Spark would not run one."""
        start = self._text(self.reader.initialOffset) if not self.offsets else self.offsets[-1]
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        self.reader.reportLatestOffset()
        if self.offsets and end == start:
            return False
        self.offsets.append(end)
        return True

    def run_logged(self) -> list[dict[str, Any]]:
        """Plan and read the last logged batch, for the first time or once more."""
        place = len(self.offsets) - 1
        start = self._text(self.reader.initialOffset) if not place else self.offsets[place - 1]
        end = self.offsets[place]
        if (start, end) == self._handed_over[:2]:
            return self._handed_over[2]
        tasks = self.reader.partitions(json.loads(start), json.loads(end))
        batches = self._batches_of_planner(start, end)
        rows: list[dict[str, Any]] = []
        for task in tasks:
            # A task gets the reader and its partition pickled, and knows nothing else.
            reader, mine = pickle.loads(pickle.dumps((self.reader, task)))
            rows += [row for batch in reader.read(mine) for row in batch.to_pylist()]
        if batches is not None:
            assert len(tasks) == 1
            assert [row for batch in batches for row in batch.to_pylist()] == rows
            self._handed_over = start, end, rows
            self.handed_over += 1
        return rows

    def _batches_of_planner(self, start: str, end: str) -> list[pa.RecordBatch] | None:
        """What PySpark's planning process hands to Spark with a plan."""
        wrapper = prefetching_class()
        if wrapper is None or not isinstance(self.reader, wrapper):
            return None
        found = self.reader.getCache(json.loads(start), json.loads(end))
        return None if found is None else list(found)

    def finish(self) -> None:
        """Spark has written its commit log."""
        self.committed = len(self.offsets)
        self.reader.commit(json.loads(self.offsets[-1]))

    def trigger(self, **limits: bool) -> list[str] | None:
        """One trigger: the values read, or None if there was no batch."""
        if self.committed == len(self.offsets) and not self.plan_next(**limits):
            return None
        rows = self.run_logged()
        self.finish()
        return [row["value"].decode() for row in rows]

    def drain(self, most: int = 100) -> list[list[str]]:
        """Triggers until there is nothing to do."""
        batches: list[list[str]] = []
        while (found := self.trigger()) is not None:
            batches.append(found)
            assert len(batches) <= most, "it does not come to an end"
        return batches

    def position(self) -> dict[str, Any]:
        """The last logged end offset."""
        found: dict[str, Any] = json.loads(self.offsets[-1])
        return found

    @staticmethod
    def _text(call: Callable[[], dict[str, Any]]) -> str:
        return json.dumps(call())


def texts(first: int, end: int, prefix: str = "") -> list[str]:
    """Values that say their number."""
    return [f"{prefix}{number}" for number in range(first, end)]


def payloads(first: int, end: int, prefix: str = "") -> list[bytes]:
    """The same as bytes to append."""
    return [text.encode() for text in texts(first, end, prefix)]


def joined(batches: list[list[str]]) -> list[str]:
    """The values of all batches."""
    return [value for batch in batches for value in batch]
