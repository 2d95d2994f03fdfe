"""Compaction: of the records of a key only the last stays.

One pass has two parts. First the keys of segments that are new since the last time go into a table
of limited size, with the offset of their last record. Then every closed segment, also those that
were compacted before, is read again, and written anew without the records whose key the table knows
at a later offset. If the table fills up, the pass ends there; the next one begins where it ended.

Records without a key stay. A null value says that its key is gone: it stays for a while, so that
whoever reads from the start gets to know, and goes once a compaction that ended long enough ago had
already removed all before it. Offsets stay what they are; where records went there are holes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..config import StoreConfig
from ..errors import BrokenFrameError, StoppedError
from ..format.frame import KEY, decode_body
from ..format.frame_scan import StoredFrame
from ..io.io_errors import typed_read_errors
from ..segments.sealed import Sealed, SealedLog
from . import clean_marks
from .compaction_policy import MORE_PASSES, Dirt, dirty_ratio_of, not_due
from .key_digest import SEED_BYTES, Digests, Int64s, digests
from .key_table import KeyTable
from .report import Pace, UpkeepReport
from .segment_rewriter import Rewritten, SegmentRewriter
from .segment_swap import Replacer

Bools = npt.NDArray[np.bool_]


class _Keyed(NamedTuple):
    """The records of a frame that have a key: rows, offsets, digests, and whose value is null."""

    rows: Int64s
    offsets: Int64s
    keys: Digests
    nulls: Bools


class Compactor:
    """Compacts one partition, in as many passes as its keys need. Not thread-safe."""

    def __init__(self, files: SealedLog, config: StoreConfig, pace: Pace) -> None:
        self._files = files
        self._config = config
        self._pace = pace
        self._seed = os.urandom(SEED_BYTES)
        self._table = KeyTable(config.compaction_memory_bytes)
        self._horizon = self.tombstones = self.removed = 0
        self.report = UpkeepReport("compact", files.topic, files.partition)

    def fill(self, segments: Sequence[Sealed], start: int) -> int:
        """Put the keys from offset ``start`` on into the table; return how far it got."""
        self._table = KeyTable(self._config.compaction_memory_bytes)
        upto = start
        for segment in segments:
            if segment.end <= start:
                continue
            with suppress(FileNotFoundError):  # retention was faster
                full_at = self._fill_from(segment, start)
                if full_at is not None:
                    return full_at
            upto = segment.end
        return upto

    def _fill_from(self, segment: Sealed, start: int) -> int | None:
        for frame in self._files.frames(segment):
            self._pace.advance(frame.header.length)
            if frame.end_offset > start and frame.header.columns & KEY:
                full_at = self._put(self._keyed(frame), start)
                if full_at is not None:
                    return full_at
        return None

    def _put(self, keyed: _Keyed, start: int) -> int | None:
        """Put records into the table; the offset of the first that found no room, or None."""
        at = int(np.searchsorted(keyed.offsets, start))
        while at < len(keyed.rows):
            room = self._table.capacity - self._table.count
            if room <= 0:
                return int(keyed.offsets[at])
            part = slice(at, at + room)
            keys = Digests(keyed.keys.first[part], keyed.keys.second[part])
            self._table.put(keys, keyed.offsets[part])
            at += room
        return None

    def begin_removal(self, horizon: int) -> None:
        """From here on count what goes and which null values stay."""
        self._horizon, self.tombstones, self.removed = horizon, 0, 0

    def survivors(self, frame: StoredFrame) -> Int64s | None:
        """Rows of a frame that stay; None for all of them."""
        if not frame.header.columns & KEY:
            return None
        keyed = self._keyed(frame)
        gone = self._table.latest(keyed.keys) > keyed.offsets
        gone |= keyed.nulls & (keyed.offsets < self._horizon)
        self.tombstones += int(np.count_nonzero(keyed.nulls & ~gone))
        count = int(np.count_nonzero(gone))
        if not count:
            return None
        self.removed += count
        stays = np.ones(frame.header.records, dtype=np.bool_)
        stays[keyed.rows[gone]] = False
        return np.flatnonzero(stays)

    def rewritten(self, replacer: Replacer, segment: Sealed) -> Rewritten | None:
        """A segment without what is gone, written aside; None if nothing is."""
        with suppress(FileNotFoundError):  # retention was faster
            for frame in self._files.frames(segment):
                rows = self.survivors(frame)
                if rows is not None:
                    return self._rewrite(replacer, segment, frame, rows)
                self._pace.advance(frame.header.length)
        return None

    def _rewrite(
        self, replacer: Replacer, segment: Sealed, first: StoredFrame, rows: Int64s
    ) -> Rewritten:
        """Write a segment anew, of which all before the frame ``first`` stays."""
        with replacer.rewriter(segment.base) as writer:
            for frame in self._files.frames(segment):
                if frame.position < first.position:
                    writer.carry(frame)
                elif frame.position == first.position:
                    self._add(writer, frame, rows)
                else:
                    self._add(writer, frame, self.survivors(frame))
            return writer.finish()

    def _add(self, writer: SegmentRewriter, frame: StoredFrame, rows: Int64s | None) -> None:
        if rows is None:
            writer.carry(frame)
        else:
            writer.add(frame, rows=rows, codec=frame.header.codec)
        self._pace.advance(frame.header.length)

    def _keyed(self, frame: StoredFrame) -> _Keyed:
        files = self._files
        with typed_read_errors(files.topic, files.partition, files.directory):
            batch = decode_body(frame.header, frame.rest)
            if batch is None:
                raise BrokenFrameError("a frame with keys has no body", offset=frame.offset)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        key, value, deltas = columns["key"], columns.get("value"), columns.get("offset_delta")
        present: Bools = key.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(present)
        offsets = rows if deltas is None else deltas.to_numpy().astype(np.int64)[rows]
        null: Bools = np.ones(len(rows), dtype=np.bool_)
        if value is not None:
            null = value.is_null().to_numpy(zero_copy_only=False)[rows]
        kept: pa.Array = key if key.null_count == 0 else key.drop_null()
        return _Keyed(rows, offsets + frame.offset, digests(kept, self._seed), null)


def planned_compaction(
    files: SealedLog, config: StoreConfig, dirt: Dirt, start: int, pace: Pace
) -> UpkeepReport:
    """What the first pass would remove, found by reading all keys; sizes are in proportion."""
    report = UpkeepReport("compact", files.topic, files.partition)
    compactor = Compactor(files, config, pace)
    pace.begin("compact", files.topic, files.partition, dirt.total_bytes(start))
    upto = compactor.fill(dirt.segments, start)
    compactor.begin_removal(dirt.horizon)
    for segment in dirt.segments:
        before = compactor.removed
        records = 0
        for frame in files.frames(segment) if segment.base < upto else ():
            compactor.survivors(frame)
            records += frame.header.records
            pace.advance(frame.header.length)
        gone = compactor.removed - before
        if gone:
            after = segment.size * (records - gone) // records
            report = report.counted(segment.size, after, gone)
    more = bool(dirt.segments) and upto < dirt.segments[-1].end
    note = MORE_PASSES if more else ""
    return replace(report, done=not report.segments_before and not more, note=note)


def compact_partition(
    replacer: Replacer, topic_uuid: str, high_watermark: int, min_ratio: float, pace: Pace
) -> UpkeepReport:
    """Compact a partition, if it is due. What is finished stays so if it is stopped."""
    files, config = replacer.files, replacer.config
    where = (files.topic, files.partition)
    report = UpkeepReport("compact", *where)
    with replacer.held():
        path = clean_marks.native_path(*where)
        marks = clean_marks.read(files.vfs, path, topic_uuid)
        segments = files.segments(high_watermark)
        dirt = dirty_ratio_of(segments, marks, config, files.vfs.now_us())
        if not dirt.is_due(min_ratio):
            return replace(report, note=not_due(dirt, min_ratio))
        # What is removed is gone for good, so what it goes for must not be lost in a power cut.
        replacer.settle()
        compactor = Compactor(files, config, pace)
        try:
            pace.begin("compact", *where, dirt.total_bytes(marks.upto))
            start, end = min(marks.upto, segments[-1].end), segments[-1].end
            while True:
                upto = compactor.fill(files.segments(high_watermark), start)
                if not _remove(compactor, replacer, upto, dirt.horizon):
                    note = "segments changed meanwhile"
                    return replace(compactor.report, done=False, note=note)
                now = files.vfs.now_us()
                marks = marks.after(upto, now, compactor.tombstones, dirt.horizon)
                clean_marks.write(files.vfs, path, topic_uuid, marks)
                if upto >= end or upto == start:  # retention may have taken the rest
                    return compactor.report
                start = upto
        except StoppedError:
            return replace(compactor.report, done=False, note="stopped")


def _remove(compactor: Compactor, replacer: Replacer, upto: int, horizon: int) -> bool:
    """Write anew every segment below ``upto`` from which something goes; False if one changed."""
    compactor.begin_removal(horizon)
    complete = True
    for segment in replacer.files.segments():
        if segment.base >= upto:
            break
        before = compactor.removed
        new = compactor.rewritten(replacer, segment)
        if new is None:
            continue
        if replacer.replace([segment], new):
            gone = compactor.removed - before
            compactor.report = compactor.report.counted(segment.size, new.size, gone)
        else:
            complete = False
    return complete
