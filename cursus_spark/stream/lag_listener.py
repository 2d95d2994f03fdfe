"""The lag of running streams, from the progress that Spark reports after each micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from ..errors import CursusError
from ..logs import logger
from .position import StreamPosition, parse_stream_offset

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class QueryLag:
    """What a query has not read of its topics after a micro-batch.

    Attributes:
        query: The name of the query, or its id if it has none.
        batch: The number of the micro-batch.
        partitions: By topic and partition, how many offsets the query has not read. Empty after the
            end of the query, and on PySpark 4.1, whose progress does not have the latest offset.
    """

    query: str
    batch: int
    partitions: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Of all partitions."""
        return sum(self.partitions.values())

    def __str__(self) -> str:
        waiting = {place: lag for place, lag in self.partitions.items() if lag}
        largest = sorted(waiting, key=lambda place: -waiting[place])[:_SHOWN]
        shown = ", ".join(f"{topic}-{part}: {waiting[topic, part]}" for topic, part in largest)
        more = ", …" if len(waiting) > _SHOWN else ""
        text = f"query {self.query}, batch {self.batch}: {self.records} records behind"
        return f"{text} ({shown}{more})" if shown else text


class LagListener(StreamingQueryListener):
    """Logs the lag of every stream that reads cursus topics, or passes it to a function.

    ``spark.streams.addListener(LagListener())`` logs it to ``cursus_spark`` at level INFO.

    Args:
        export: Called after each micro-batch, in a thread of Spark's, with the lag of a query. It
            is also called once with no partitions when a query ends.
    """

    def __init__(self, export: Callable[[QueryLag], None] | None = None) -> None:
        super().__init__()
        self._export = _log if export is None else export
        self._last: dict[str, QueryLag] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is finished."""
        progress = event.progress
        found = lag_of(progress)
        if found is not None:
            self._last[str(progress.id)] = found
            self._export(found)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The query has ended: nobody reads its lag on."""
        last = self._last.pop(str(event.id), None)
        if last is not None:
            self._export(QueryLag(last.query, last.batch))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing was there to read: the lag is what the last micro-batch left."""


def lag_of(progress: StreamingQueryProgress) -> QueryLag | None:
    """The lag of a query after a micro-batch; None if it reads no topic of ours."""
    partitions: dict[tuple[str, int], int] = {}
    ours = False
    for source in progress.sources:
        read = _position(source.endOffset)
        if read is None:
            continue
        ours = True
        latest = _position(source.latestOffset)
        for topic, ends in ({} if latest is None else latest.positions).items():
            for partition, end in ends.items():
                behind = max(0, end - (read.position(topic, partition) or 0))
                partitions[topic, partition] = partitions.get((topic, partition), 0) + behind
    name = progress.name or str(progress.id)
    return QueryLag(name, progress.batchId, partitions) if ours else None


def _position(text: str | None) -> StreamPosition | None:
    """What an offset in the progress says; None of another source's, or where there is none."""
    try:
        found = parse_stream_offset(text or "")
    except CursusError:
        return None
    return found if isinstance(found, StreamPosition) else None


def _log(found: QueryLag) -> None:
    if found.partitions:
        logger().info("%s", found)
