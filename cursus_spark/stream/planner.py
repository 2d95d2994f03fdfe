"""Plans the micro-batches of a stream, from the log and from the offsets that Spark keeps.

Spark asks for the initial offset several times and keeps none of the answers, so it is only a
symbol; the first end offset carries the resolved start. The two offsets that Spark passes contain
everything a batch needs, so a batch is planned the same way again after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from storage_core import Store

from ..compat import ReadAllAvailable, ReadLimit, ReadMaxRows
from ..errors import cursus_error
from ..options.stream_read_options import StreamReadOptions
from ..read.data_loss import Loss, deleted_meanwhile, lose, planned
from ..read.log_slice import LogSlice
from ..read.planning import plan
from ..read.query_where import QueryWhere
from ..read.typed_topics import QueryColumns
from ..store import TopicPartition, open_for_read
from .limits import is_too_little, limited_ends
from .micro_batch import micro_batch_ranges
from .position import Positions, StreamPosition, SymbolicStart, parse_stream_offset
from .snapshot import TopicsSnapshot, by_topic, take_snapshot
from .start_offsets import (
    RecoveryWarnings,
    check_continued,
    first_position,
    reconcile,
    recovery_due,
    require_sound_ends,
)

_NO_ROW_LIMIT = (1 << 63) - 1


class StreamPlanner:
    """Plans the micro-batches of one query. It lives as long as the query runs, on the driver."""

    def __init__(
        self,
        options: StreamReadOptions,
        columns: QueryColumns | None = None,
        where: QueryWhere | None = None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._where = where
        self._store: Store | None = None
        self._recovery_warnings = RecoveryWarnings()
        self._snapshot: TopicsSnapshot | None = None
        self._available_now = False
        self._target: TopicsSnapshot | None = None
        self._last_batch: float | None = None
        self._mirrored: StreamPosition | None = None
        self._first: Positions | None = None
        self._reported: StreamPosition | None = None
        self._logged: set[Loss] = set()
        self._handed_over: tuple[dict[str, Any], dict[str, Any]] | None = None

    def initial_offset(self) -> dict[str, Any]:
        """A symbol; see the module's text."""
        return SymbolicStart(self._options.starting.describe()).to_dict()

    def default_limit(self) -> ReadLimit:
        """The limits of the options; without any: everything.

        Spark itself passes ``ReadAllAvailable`` for ``Trigger.Once``: the two must differ.
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

    def stop_at_first_batch(self) -> None:
        """AvailableNow: read only what is there when the first batch is planned."""
        self._available_now = True
        self._target = None

    def latest_offset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next batch; equal to ``start`` when there is nothing to read.

        Spark 4.1 passes neither argument: see ``_without_start``.
        """

        def latest(gone: frozenset[str]) -> dict[str, Any]:
            if start is None:
                return self._without_start(self.store(), gone)
            return self._latest(self.store(), start, limit or ReadAllAvailable(), gone)

        return planned(self.store(), latest, self._logged)

    def _latest(
        self, store: Store, start: dict[str, Any], limit: ReadLimit, gone: frozenset[str]
    ) -> dict[str, Any]:
        begun = parse_stream_offset(start)
        first = isinstance(begun, SymbolicStart)
        # In this order: records that arrive in between come after the start, not before it.
        position = self._first_position(store, gone) if first else begun
        assert isinstance(position, StreamPosition)
        if not first:
            self._mirror(store, position)
        found = take_snapshot(store, self._options, self._snapshot)
        if self._snapshot is None and not first:
            check_continued(store, self._options, position, found)
        self._snapshot = found
        now = self._frozen(found, position)
        begin = reconcile(store, self._options, position, now, self._recovery_warnings)
        require_sound_ends(store, begin, now)
        ends = self._ends(store, now, begin, limit, first=first)
        end = StreamPosition(now.ids, by_topic(ends), by_topic(begin) if first else None)
        if (position.ids, position.positions) == (end.ids, end.positions) and not first:
            return start
        if (start, end.to_dict()) == self._handed_over:
            # Spark keeps these batches by their offsets, and the log has other records there now.
            end = replace(end, start=by_topic(begin))
        return end.to_dict()

    def handed_over(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Spark got the batches between two offsets with their plan."""
        self._handed_over = start, end

    def report_latest(self) -> dict[str, Any]:
        """Where the topics end: Spark's progress shows the lag of the query by it.

        Spark asks right after ``latest_offset``, which has just taken a snapshot.
        """
        found = self._snapshot or take_snapshot(self.store(), self._options)
        return found.position().to_dict()

    def plan_batch(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogSlice]:
        """The tasks of one batch, from the two offsets alone."""
        begun, last = parse_stream_offset(start), parse_stream_offset(end)
        if not isinstance(last, StreamPosition):
            raise cursus_error(
                "CHECKPOINT_INVALID",
                "The checkpoint has an end offset without positions. Start with a new checkpoint.",
            )

        def tasks(gone: frozenset[str]) -> list[LogSlice]:
            del gone  # the offsets of the batch name them
            return self._tasks(self.store(), begun, last)

        return planned(self.store(), tasks, self._logged)

    def _tasks(
        self, store: Store, begun: StreamPosition | SymbolicStart, last: StreamPosition
    ) -> list[LogSlice]:
        if self._reported is not None and isinstance(begun, StreamPosition):
            # Spark 4.1: the start was not compared with what is there.
            now = take_snapshot(store, self._options)
            reconcile(store, self._options, begun, now, self._recovery_warnings)
        ranges, ids = micro_batch_ranges(store, self._options, begun, last)
        return plan(store, self._options, ranges, ids, self._columns, self._where)

    def batch_done(self, end: dict[str, Any]) -> None:
        """Mirror a finished batch into the consumer group, where lag tools read it."""
        done = parse_stream_offset(end)
        if isinstance(done, StreamPosition):
            store = self.store()
            planned(store, lambda _: self._mirror(store, done))

    def store(self) -> Store:
        """The store, opened at the first use."""
        if self._store is None:
            self._store = open_for_read(self._options)
        return self._store

    def _ends(
        self,
        store: Store,
        now: TopicsSnapshot,
        begin: Mapping[TopicPartition, int],
        limit: ReadLimit,
        *,
        first: bool,
    ) -> dict[TopicPartition, int]:
        """Ends of the next batch: the high watermarks or the frozen target, within the limits."""
        ends = {where: max(at, self._wanted_end(now, where, at)) for where, at in begin.items()}
        if isinstance(limit, ReadAllAvailable):
            return ends
        if not first and not self._available_now and is_too_little(self._options, begin, ends):
            # After a restart the time of the last batch is unknown: the first one does not wait.
            last = self._last_batch
            delay_s = self._options.max_trigger_delay_ms / 1000
            if last is not None and time.monotonic() - last < delay_s:
                return dict(begin)
        limited = limited_ends(store, self._options, begin, ends)
        self._last_batch = time.monotonic()
        return limited

    def _frozen(self, now: TopicsSnapshot, position: StreamPosition) -> TopicsSnapshot:
        """What an AvailableNow run reads: new partitions and topics wait for the next run.

        Else the run would not end as long as topics are created.
        """
        if not self._available_now:
            return now
        if self._target is None:
            self._target = now
        target = self._target
        known = {*target.ids, *position.ids}
        return TopicsSnapshot(
            {topic: uuid for topic, uuid in now.ids.items() if topic in known},
            {
                where: end
                for where, end in now.ends.items()
                if where in target.ends or position.position(*where) is not None
            },
            now.unknown,
        )

    def _wanted_end(self, now: TopicsSnapshot, where: TopicPartition, begin: int) -> int:
        """The end of a partition, or its frozen target; 0 if the topic was created again since."""
        end, target = now.ends.get(where, begin), self._target
        if target is None:
            return end
        same = target.ids.get(where[0]) == now.ids.get(where[0])
        return min(end, target.ends.get(where, 0)) if same else 0

    def _mirror(self, store: Store, done: StreamPosition) -> None:
        """Write finished positions to the consumer group, unless they are there.

        Spark calls ``commit`` only when it plans the next batch, and not at the end of a run. But
        everything before the start of a new batch is finished too.
        """
        group = self._options.consumer_group
        if group is None or done == self._mirrored:
            return
        now = take_snapshot(store, self._options)
        kept = {
            topic: positions
            for topic, positions in done.positions.items()
            if positions and now.ids.get(topic) == done.ids.get(topic)
        }
        if kept:
            store.commit_offsets(group, kept)
        self._mirrored = done

    def _first_position(
        self, store: Store, gone: frozenset[str], *, is_new: bool = True
    ) -> StreamPosition:
        """Where a new query starts; ``gone`` were there when its planning began."""
        for topic in sorted(gone):
            lose(self._options, deleted_meanwhile(topic))
        return first_position(store, self._options.without(gone), is_new=is_new)

    def _without_start(self, store: Store, gone: frozenset[str]) -> dict[str, Any]:
        """Everything available, for Spark 4.1, which does not pass the position of the stream.

        Spark 4.1 does not say either whether the query is new. So the first end offset of every run
        carries a start, which a continued query ignores. ``plan_batch`` gets both offsets and
        notices lost records.
        """
        if self._first is None:
            self._first = self._first_position(store, gone, is_new=False).positions
        now = self._snapshot = take_snapshot(store, self._options)
        for topic in sorted(now.unknown):
            raise recovery_due((topic, 0), None, 0)
        known = StreamPosition() if self._reported is None else self._reported
        require_sound_ends(store, {where: known.position(*where) for where in now.ends}, now)
        ends = {
            (topic, number): max(end, known.position(topic, number) or 0)
            if known.ids.get(topic) == now.ids[topic]
            else end
            for (topic, number), end in now.ends.items()
        }
        self._reported = StreamPosition(now.ids, by_topic(ends), self._first)
        return self._reported.to_dict()
