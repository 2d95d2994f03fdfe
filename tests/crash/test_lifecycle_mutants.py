"""The proof of the operations tested: each of their steps that is left out must be missed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from storage_core.format import typed_frames
from storage_core.format.frame_scan import StoredFrame
from storage_core.maintenance import delete_records
from storage_core.maintenance.segment_rewriter import Rewritten, SegmentRewriter
from storage_core.maintenance.segment_swap import Replacer
from storage_core.maintenance.typed_keys import FrameKeys, TypedKeys
from storage_core.schema import keys
from storage_core.schema.rows import TypedRows
from storage_core.segments import deletion_markers
from storage_core.vfs import Vfs
from tests.crash.bugs.detectors import MISTAKES, FoundError, detector
from tests.crash.bugs.mutating import Mutant
from tests.crash.explorer.exploration import quickly
from tests.support.patching import replaced, without
from tests.support.sizes import SEED


def remove_at_once(vfs: Vfs, directory: str, bases: Sequence[int], end: int) -> None:  # noqa: ARG001
    """Copies go without a deletion marker, the highest first."""
    deletion_markers._remove_files(vfs, directory, [*reversed(bases)], [])


def drop_the_rest(replacer: Replacer, segment: Any, offset: int, pace: Any) -> None:
    """Of a segment that is cut nothing stays."""


def short(self: SegmentRewriter) -> Rewritten:
    """A file without what waits to be written."""
    if self._waiting.rows:
        self._waiting.take_all()
    return FINISH(self)


def of_first_column(self: TypedKeys, header: Any, rest: Any) -> FrameKeys:
    """A row without a value in the first column counts as a tombstone."""
    found = OF_FRAME(self, header, rest)
    rows = typed_frames.decode_rows(header, rest, self._schemas).rows
    first = self._others(rows.schema.fields)[0]
    wanted = {*self._key_columns, first.name}
    rows = typed_frames.decode_rows(header, rest, self._schemas, wanted).rows
    return found._replace(tombstones=keys.tombstones(rows, self._key_columns))


def of_one_version(self: TypedKeys, header: Any, rest: Any) -> FrameKeys:
    """The same key in two schema versions is two keys."""
    found = OF_FRAME(self, header, rest)
    version = b"%d" % typed_frames.schema_version(header, rest)
    key = [None if each is None else version + each for each in found.key.to_pylist()]
    return found._replace(key=pa.array(key, found.key.type))


def first_version(self: StoredFrame, schemas: Any = None) -> Any:
    """Rows that are written again have the columns of the first schema version only."""
    found = COLUMNS(self, schemas)
    if found.rows is not None:
        rows = found.rows
        known = {field.id for field in schemas.get(1).fields}
        arrays = [
            array if field.id in known else None
            for field, array in zip(rows.schema.fields, rows.arrays, strict=True)
        ]
        found = dataclasses.replace(found, rows=TypedRows(rows.schema, arrays, rows.count))
    return found


FINISH, OF_FRAME, COLUMNS = SegmentRewriter.finish, TypedKeys.of_frame, StoredFrame.columns
MUTANTS = {
    "copies go without a deletion marker": Mutant(
        replaced(deletion_markers.drop_merged, remove_at_once, by=(Replacer,)), "merge"
    ),
    "what waits is not written": Mutant(without(SegmentRewriter, "finish", short), "merge"),
    "the rest of a cut segment is lost": Mutant(
        replaced(delete_records._rest, drop_the_rest), "delete_records"
    ),
    "a null in the first column makes a tombstone": Mutant(
        without(TypedKeys, "of_frame", of_first_column), "compaction of rows"
    ),
    "a key of another schema version is another key": Mutant(
        without(TypedKeys, "of_frame", of_one_version), "compaction of rows"
    ),
    "compaction drops columns of later versions": Mutant(
        without(StoredFrame, "columns", first_version), "compaction of rows"
    ),
    "changed segments are replaced all the same": Mutant(
        without(Replacer, "_unchanged", lambda *_: True), "merge beside a deletion"
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_step_that_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, noticed = MUTANTS[name]
    with quickly(SEED):
        patch(monkeypatch)
        with pytest.raises((FoundError, AssertionError)) as caught:
            detector(noticed)()
    assert not any(mistake in str(caught.value) for mistake in MISTAKES), caught.value
