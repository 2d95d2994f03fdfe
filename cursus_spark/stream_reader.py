"""The stream source: positions come from the log, never from what this object remembers.

Spark asks for the initial offset several times and keeps none of the answers, so it is only a
symbol; the first end offset carries the start it stands for. Everything a batch needs stands in the
two offsets Spark hands to ``partitions``, so a batch is planned alike after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from storage_core import Store

from .compat import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from .errors import cursus_error, one_line_errors
from .options import StreamReadOptions
from .planning import LogSlice, plan
from .ranges import Available, TopicPartition, within
from .read_task import open_store, read_slice
from .stream_position import StreamPosition, SymbolicStart, parse_stream_offset
from .stream_state import TopicsNow, first_offset, first_position, look, nested, reconcile
from .trigger import is_too_little, limited_ends

_NO_ROW_LIMIT = (1 << 63) - 1


class CursusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source. One long-lived object plans; pickled copies of it read."""

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._store: Store | None = None
        self._available_now = False
        self._target: TopicsNow | None = None
        self._last_batch: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Carry what to read, never open files or the planner's memory."""
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        CursusStreamReader.__init__(self, state["_options"], state["_schema"])

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """A symbol; see the module's text."""
        return SymbolicStart(self._options.starting.describe()).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits of the options; only without any is everything wanted.

        Spark passes ``ReadAllAvailable`` by itself for ``Trigger.Once``: the two must differ.
        """
        options = self._options
        limits = (
            options.max_offsets_per_trigger,
            options.max_bytes_per_trigger,
            options.min_offsets_per_trigger,
        )
        if all(limit is None for limit in limits):
            return ReadAllAvailable()
        return ReadMaxRows(options.max_offsets_per_trigger or _NO_ROW_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read only what is there when the first batch is planned."""
        self._available_now = True
        self._target = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; equal to ``start`` when there is nothing to read."""
        with one_line_errors():
            store = self._opened()
            now = look(store, self._options)
            begun = parse_stream_offset(start)
            first = isinstance(begun, SymbolicStart)
            position = first_position(store, self._options) if first else begun
            assert isinstance(position, StreamPosition)
            begin = reconcile(store, self._options, position, now)
            ends = self._ends(store, now, begin, limit, first=first)
            end = StreamPosition(now.ids, nested(ends), nested(begin) if first else None)
            return self._unless_equal(start, begun, end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the topics end, so that the progress shows how far behind the query is."""
        with one_line_errors():
            return look(self._opened(), self._options).position().to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one batch, from the two offsets alone."""
        with one_line_errors():
            store = self._opened()
            last = parse_stream_offset(end)
            begun = parse_stream_offset(start)
            if not isinstance(last, StreamPosition):
                raise cursus_error(
                    "CHECKPOINT_INVALID", "The checkpoint has an end offset without positions."
                )
            ranges = {
                where: bounds
                for where, bounds in self._ranges(store, begun, last)
                if bounds[0] < bounds[1]
            }
            return plan(store, self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        task = partition if isinstance(partition, LogSlice) else LogSlice(())
        return read_slice(self._options, self._schema, task)

    def commit(self, end: dict[str, Any]) -> None:
        """Mirror a finished batch into the consumer group, where lag tools look."""
        group = self._options.consumer_group
        if group is None:
            return
        with one_line_errors():
            store, done = self._opened(), parse_stream_offset(end)
            if isinstance(done, StreamPosition):
                existing = set(store.topics())
                kept = {
                    topic: positions
                    for topic, positions in done.positions.items()
                    if topic in existing and positions
                }
                store.commit_offsets(group, kept)

    def _opened(self) -> Store:
        if self._store is None:
            self._store = open_store(self._options)
        return self._store

    def _ends(
        self,
        store: Store,
        now: TopicsNow,
        begin: Mapping[TopicPartition, int],
        limit: ReadLimit,
        *,
        first: bool,
    ) -> dict[TopicPartition, int]:
        """Ends of the next batch: what is there, the frozen target, the limits."""
        if self._available_now and self._target is None:
            self._target = now
        target = now.ends if self._target is None else self._target.ends
        # A partition that appeared behind the frozen target waits for the next run.
        ends = {
            where: max(begin[where], min(end, target.get(where, 0)))
            for where, end in now.ends.items()
        }
        if isinstance(limit, ReadAllAvailable):
            return ends
        if not first and not self._available_now and is_too_little(self._options, begin, ends):
            if self._last_batch is None:
                self._last_batch = time.monotonic()
            waited_ms = (time.monotonic() - self._last_batch) * 1000
            if waited_ms < self._options.max_trigger_delay_ms:
                return dict(begin)
        self._last_batch = time.monotonic()
        return limited_ends(store, self._options, begin, ends)

    def _unless_equal(
        self, start: dict[str, Any], begun: StreamPosition | SymbolicStart, end: StreamPosition
    ) -> dict[str, Any]:
        """``start`` itself when nothing moved: the first batch's ``from`` is not news."""
        if isinstance(begun, StreamPosition) and (begun.ids, begun.positions) == (
            end.ids,
            end.positions,
        ):
            return start
        return end.to_dict()

    def _ranges(
        self, store: Store, begun: StreamPosition | SymbolicStart, last: StreamPosition
    ) -> Iterator[tuple[TopicPartition, tuple[int, int]]]:
        now = look(store, self._options)
        first = last.start if isinstance(begun, SymbolicStart) else begun.positions
        if first is None:
            raise cursus_error(
                "CHECKPOINT_INVALID", "The checkpoint's first batch does not say where it starts."
            )
        for topic, ends in last.positions.items():
            same = now.ids.get(topic) == last.ids.get(topic)
            for partition, end in ends.items():
                where = (topic, partition)
                if where not in now.ends or not same:
                    # latestOffset has said so, or failOnDataLoss is off: nothing is left to read.
                    continue
                start = first.get(topic, {}).get(partition)
                if isinstance(begun, StreamPosition) and begun.ids.get(topic) != last.ids.get(
                    topic
                ):
                    start = None
                if start is None:
                    start = first_offset(store, self._options, where, now.ends[where])
                held = Available(store.start_offset(*where), max(now.ends[where], end))
                fail = self._options.fail_on_data_loss
                yield where, (within(where, start, held, fail=fail) if start < end else end, end)
