"""The proof of the operations tested: each of their steps that is left out must be missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from storage_core.maintenance import delete_records
from storage_core.maintenance.segment_rewriter import Rewritten, SegmentRewriter
from storage_core.maintenance.segment_swap import Replacer
from storage_core.segments import deletion_markers
from storage_core.vfs import Vfs
from tests.crash.detectors import MISTAKES, FoundError, detector
from tests.crash.exploration import quickly
from tests.crash.mutating import Mutant
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


FINISH = SegmentRewriter.finish
MUTANTS = {
    "copies go without a deletion marker": Mutant(
        replaced(deletion_markers.drop_merged, remove_at_once, by=(Replacer,)), "merge"
    ),
    "what waits is not written": Mutant(without(SegmentRewriter, "finish", short), "merge"),
    "the rest of a cut segment is lost": Mutant(
        replaced(delete_records._rest, drop_the_rest), "delete_records"
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
