"""Short ways to run streaming queries and to look at what they did; the tests' own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cursus_spark.compat import READ_LIMITS_REACH_SOURCES
from storage_core import Store
from tests.support.processes import wait_until

needs_read_limits = pytest.mark.skipif(
    not READ_LIMITS_REACH_SOURCES, reason="PySpark 4.1 has no read limits for Python sources"
)
PATIENCE_S = 240.0
"""How long a step may take on a machine that does other work; quiet ones take seconds."""


@dataclass
class Streams:
    """Queries over one log directory, with checkpoints beside it."""

    spark: SparkSession
    path: Path
    format: str = "cursus"
    options: dict[str, Any] = field(default_factory=dict)
    running: list[StreamingQuery] = field(default_factory=list)

    def read(self, topic: str | None, **options: Any) -> DataFrame:
        """A topic as a stream, from its start."""
        named = {} if topic is None else {"subscribe": topic}
        given = {"startingOffsets": "earliest", **named, **self.options, **options}
        return self.spark.readStream.format(self.format).options(**given).load(str(self.path))

    def write(
        self,
        rows: DataFrame,
        topic: str | None,
        name: str = "",
        *,
        mode: str = "append",
        trigger: dict[str, Any] | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Start a query into a topic; all that is there, unless ``trigger`` says else."""
        given = options if topic is None else {"topic": topic, **options}
        return self._begin(
            rows.writeStream.format(self.format)
            .options(**self.options, **given)
            .option("checkpointLocation", self.checkpoint(name or f"to-{topic}"))
            .outputMode(mode)
            .trigger(**(trigger or {"availableNow": True}))
            .start(str(self.path))
        )

    def each(
        self,
        rows: DataFrame,
        call: Callable[[DataFrame, int], None],
        name: str,
        trigger: dict[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start a query into ``foreachBatch``."""
        return self._begin(
            rows.writeStream.foreachBatch(call)
            .option("checkpointLocation", self.checkpoint(name))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def checkpoint(self, name: str) -> str:
        """Where the query of this name keeps its progress."""
        return str(self.path.parent / "checkpoints" / name)

    def store(self) -> Store:
        """The same directory without Spark."""
        return Store.open(self.path)

    def values(self, topic: str, partition: int = 0) -> list[str]:
        """What a partition holds, in its order."""
        with self.store() as store:
            batches = store.read(topic, partition, columns=("value",))
            return [value.decode() for batch in batches for value in batch[0].to_pylist()]

    def stop(self) -> None:
        """End what still runs."""
        for query in self.running:
            query.stop()

    def _begin(self, query: StreamingQuery) -> StreamingQuery:
        self.running.append(query)
        return query


def finish(query: StreamingQuery) -> StreamingQuery:
    """Wait until the query ends by itself."""
    assert query.awaitTermination(int(PATIENCE_S)), "the query did not end in time"
    return query


def until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Wait for something the query will do; its failure ends the wait."""

    def met() -> bool:
        if query is not None and (failed := query.exception()) is not None:
            raise AssertionError(f"the query failed: {failed}")
        return condition()

    wait_until(met, PATIENCE_S)
