"""Copying a log directory into any layout that can store its records.

Offsets are kept, or an error says that the target cannot keep them. For a broker's layout the
source is read once before anything is copied, to find what the target cannot store. An interrupted
conversion continues where the target ends. At the end both sides are read and compared.
``topic_copy`` says what is copied of each kind of topic.

The target's ``convert.json`` holds the start offset of each source partition when a renumbering
conversion began, because its records are counted from there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa

from .. import arguments
from ..arguments import store_url
from ..config import StoreConfig
from ..errors import ConversionError, UnsupportedColumnError
from ..format.columns import Columns, make_columns
from ..format.numbers import numbers_of
from ..io import json_files
from ..io.locks import ensure_lock_file, locked
from ..layouts.registry import LAYOUTS
from ..store.store import Store
from ..types import Int64s, IsolationLevel, OffsetRange
from .comparison import first_difference
from .progress import Progress, ProgressReporter, SourcePartition, source_partitions
from .topic_copy import CopyOptions, TopicCopy, TypedAs, copy_of

_DROPPABLE = ("key", "headers", "timestamp")
_PIECE_BYTES = 8 << 20
_RECHECKED = 4096
_log = logging.getLogger("storage_core")


class Converted(NamedTuple):
    """One converted partition: its offsets in the source, and the records copied by this run."""

    topic: str
    partition: int
    offsets: OffsetRange
    copied: int


def convert(
    source: str | os.PathLike[str] | Store,
    target: str | os.PathLike[str] | Store,
    *,
    topics: Sequence[str] | None = None,
    layout: str = "auto",
    renumber: bool = False,
    drop: Sequence[str] = (),
    typed_as: TypedAs | None = None,
    isolation: IsolationLevel = "read_committed",
    config: StoreConfig | None = None,
    storage: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Converted]:
    """Copy topics into a store of any layout; call it again to continue after a crash.

    Args:
        source: The log directory or store to copy.
        target: The log directory or store to copy into; created if it is missing.
        topics: The topics to copy; all by default.
        layout: Layout of a new target; native by default.
        renumber: Number the records from 0 instead of keeping their offsets.
        drop: Columns not to copy: key, headers, timestamp.
        typed_as: ``json`` makes records topics of typed topics: the value is the row as JSON, the
            key the key columns as JSON. By default typed topics stay typed, with all schema
            versions, and only a native store or one of objects can hold them.
        isolation: For the transactions in a cursus broker's directory.
        config: Settings of a target that is given as a path.
        storage: Options of the object store of a source or target that is given as a URL.
        progress: Called after each piece of work.

    Raises:
        UnsupportedColumnError: the target's layout cannot store a column, the offsets, or the
            columns of a typed topic.
        ConversionError: the target has other records than the source.
    """
    dropped = arguments.names("drop", drop)
    chosen = None if topics is None else arguments.names("topics", topics)
    arguments.function("progress", progress)
    if typed_as is not None:
        arguments.one_of("typed_as", typed_as, get_args(TypedAs))
    if unknown := [name for name in dropped if name not in _DROPPABLE]:
        raise UnsupportedColumnError(
            f"column {unknown[0]!r} cannot be dropped. Columns that can: {', '.join(_DROPPABLE)}."
        )
    with ExitStack() as stack:
        reading, writing = source, target
        if not isinstance(reading, Store):
            given = None if store_url(reading) is None else storage
            reading = Store.open(reading, isolation=isolation, storage=given)
        if not isinstance(writing, Store):
            given = None if store_url(writing) is None else storage
            writing = Store.open(writing, layout=layout, create=True, config=config, storage=given)
            stack.enter_context(writing)
        if reading.path == writing.path:
            raise ConversionError(
                f"{reading.path} cannot be converted into itself. Choose another target."
            )
        if renumber and LAYOUTS[writing.layout].state is None:
            raise ConversionError(
                f"{writing.path} is a store of {writing.layout}, which keeps the offsets of the "
                "source. Convert without renumbering."
            )
        options = CopyOptions(frozenset(dropped), renumber, typed_as)
        conversion = _Conversion(reading, writing, options)
        stack.enter_context(conversion.exclusive())
        return conversion.run(reading.topics() if chosen is None else chosen, progress)


class _Conversion:
    """One conversion; used by one thread."""

    def __init__(self, source: Store, target: Store, options: CopyOptions) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._renumber = options.renumber
        self._copies: dict[str, TopicCopy] = {}
        self._layout = LAYOUTS[target.layout]
        self._state = f"{self._layout.state}/convert"

    def exclusive(self) -> ExitStack:
        """Lock the target against other conversions.

        A store of objects has no locks: there an append of records with offsets refuses to follow
        records that it does not know.
        """
        if self._layout.state is None:
            return ExitStack()
        target, lock = self._target.vfs, f"{self._state}.lock"
        ensure_lock_file(target, lock)
        stack = ExitStack()
        stack.enter_context(locked(target, lock, 0))
        return stack

    def run(
        self, topics: Sequence[str], progress: Callable[[Progress], None] | None
    ) -> list[Converted]:
        parts = [part for topic in topics for part in source_partitions(self._source, topic)]
        # After the ends: a schema that is published later has the columns of all rows before.
        for topic in topics:
            self._copies[topic] = copy_of(self._source, self._target, topic, self._options)
        for copy in self._copies.values():
            copy.make_topic()
        for part in parts if self._layout.stores_all else ():
            # A crashed conversion may have left records above the high watermark: publish them.
            self._target.append_columns(part.topic, part.partition, _nothing())
        starts = [self._resume(part) for part in parts]
        report = ProgressReporter(parts, progress)
        if not self._layout.stores_all:
            for part, start in zip(parts, starts, strict=True):
                self._check(part, start, report)
        copied = [
            self._copy(part, start, report) for part, start in zip(parts, starts, strict=True)
        ]
        for part in parts:
            self._compare(part, part.range.start, part.range.end, report)
        return [
            Converted(part.topic, part.partition, part.range, count)
            for part, count in zip(parts, copied, strict=True)
        ]

    def _resume(self, part: SourcePartition) -> int:
        """The source offset to continue from, after a comparison with the end of the target."""
        if self._renumber:
            return self._resume_counting(part)
        have = self._target.offsets(part.topic, part.partition)
        if have.end == 0:
            return part.range.start
        if have.end > part.range.end:
            raise ConversionError(
                f"{part.name}: the target ends at offset {have.end}, the source at "
                f"{part.range.end}. Choose an empty target.",
                topic=part.topic,
                partition=part.partition,
            )
        if have.end < part.range.start:
            _log.warning(
                "%s: offsets %d to %d were removed from the source before they were copied.",
                part.name,
                have.end,
                part.range.start - 1,
            )
        start = max(part.range.start, have.start, have.end - _RECHECKED)
        self._compare(part, min(start, have.end), have.end, None)
        return max(have.end, part.range.start)

    def _resume_counting(self, part: SourcePartition) -> int:
        path = f"{self._state}.json"
        fields = json_files.read(self._target.vfs, path) or {"format": 1, "starts": {}}
        begun = fields["starts"].get(part.name)
        offset_of = (self._copies[part.topic].offset,)
        typed = self._source.topic(part.topic).is_typed
        there = self._target.read(part.topic, part.partition, columns=offset_of)
        copied = sum(batch.num_rows for batch in there)
        if begun is None and not copied:
            fields["starts"][part.name] = part.range.start
            json_files.replace(self._target.vfs, path, fields)
        elif begun != part.range.start:
            raise ConversionError(
                f"{part.name}: the target has records that did not come from this source, or the "
                "source has deleted records since. Choose an empty target.",
                topic=part.topic,
                partition=part.partition,
            )
        offset = part.range.start
        for batch in self._source.read(
            part.topic, part.partition, end=part.range.end,
            columns=("_offset" if typed else "offset",),
        ):  # fmt: skip
            if not copied:
                break
            rows = min(copied, batch.num_rows)
            offset = batch.column(0)[rows - 1].as_py() + 1
            copied -= rows
        return offset

    def _check(self, part: SourcePartition, start: int, report: ProgressReporter) -> None:
        """Raise for what the target cannot store, before anything is copied."""
        due = self._target.offsets(part.topic, part.partition).end
        if due == 0 and not self._layout.ordinal:
            due = start
        for piece in self._pieces(part, start):
            offsets = self._offsets(part, piece)
            if not self._renumber:
                first, last = int(offsets[0]), int(offsets[-1])
                if first != due or last - first + 1 != len(offsets):
                    raise self._not_in_source(part, due)
                due = last + 1
            columns = self._copies[part.topic].columns(piece)
            self._target.check_columns(part.topic, part.partition, columns)
            report("check", part, int(offsets[-1]) + 1)
        if not self._renumber and not len(part.range) and due != part.range.end:
            raise self._not_in_source(part, due)

    def _not_in_source(self, part: SourcePartition, offset: int) -> UnsupportedColumnError:
        return UnsupportedColumnError(
            f"layout {self._target.layout} cannot store the column 'offset' of {part.name}: "
            f"offset {offset} is not in the source, and this layout has no holes. Number the "
            "records from 0 (--renumber, renumber=True), or convert to a native store.",
            topic=part.topic,
            partition=part.partition,
            offset=offset,
        )

    def _copy(self, part: SourcePartition, start: int, report: ProgressReporter) -> int:
        copied = 0
        for piece in self._pieces(part, start):
            columns = self._copies[part.topic].columns(piece)
            offsets = self._offsets(part, piece)
            if not self._renumber:
                columns = replace(columns, offsets=offsets)
            self._target.append_columns(part.topic, part.partition, columns)
            copied += columns.count
            report("copy", part, int(offsets[-1]) + 1)
        have, end = self._target.offsets(part.topic, part.partition).end, part.range.end
        behind = have < end if self._layout.stores_all else not len(part.range) and end
        if behind and not self._renumber:
            # Otherwise the next record would get an offset that a deleted record or the marker of a
            # transaction had, and a consumer may have committed the offset after it.
            begin = replace(_nothing(), offsets=np.array([end]))
            self._target.append_columns(part.topic, part.partition, begin)
        return copied

    def _pieces(self, part: SourcePartition, start: int) -> Iterator[list[pa.RecordBatch]]:
        """What is copied of the source, some megabytes at a time."""
        waiting: list[pa.RecordBatch] = []
        for batch in self._copies[part.topic].read(part, start, part.range.end):
            waiting.append(batch)
            if sum(found.nbytes for found in waiting) >= _PIECE_BYTES:
                yield waiting
                waiting = []
        if waiting:
            yield waiting

    def _offsets(self, part: SourcePartition, piece: Sequence[pa.RecordBatch]) -> Int64s:
        name = self._copies[part.topic].offset
        return np.concatenate([numbers_of(batch[name]) for batch in piece])

    def _compare(
        self, part: SourcePartition, start: int, end: int, report: ProgressReporter | None
    ) -> None:
        """Read both sides and compare their records."""
        if start >= end:
            return
        copy = self._copies[part.topic]
        ours = copy.read(part, start, end)
        if self._renumber:
            theirs = copy.read_target(part, None, None)
        else:
            # The target may start later, at its first record; a missing record is still found.
            first = max(start, self._target.offsets(part.topic, part.partition).start)
            theirs = copy.read_target(part, first, end)
        row = first_difference(self._normal(ours, part, report), self._normal(theirs, part, None))
        if row is not None:
            raise ConversionError(
                f"{part.name}: record {row} from offset {start} on differs between source and "
                "target. Another program wrote to the target, or the source was compacted since. "
                "Choose an empty target.",
                topic=part.topic,
                partition=part.partition,
                offset=start,
            )

    def _normal(
        self,
        batches: Iterator[pa.RecordBatch],
        part: SourcePartition,
        report: ProgressReporter | None,
    ) -> Iterator[pa.RecordBatch]:
        """The columns that must be equal on both sides, as the target stores them."""
        copy = self._copies[part.topic]
        for batch in batches:
            if report is not None:
                report("verify", part, batch[copy.offset][-1].as_py() + 1)
            yield copy.comparable(batch)


def _nothing() -> Columns:
    """No records. Not a constant: Arrow imports pandas for it, and every command would wait."""
    return make_columns([], None, None, None, now_us=0, max_record_bytes=0)
