"""The proof of the operations tested: each of their steps that is left out must be missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from storage_core import deleting, replacing, retention
from storage_core.replacing import Replacer
from storage_core.rewriting import Rewritten, SegmentRewriter
from storage_core.vfs import Vfs
from tests.crash.explorer import Explorer
from tests.crash.invariants import new_store
from tests.crash.test_lifecycle_states import SCENARIOS, SEED

Patch = Callable[[pytest.MonkeyPatch], None]


class FoundError(Exception):
    """A violation: enough."""


class FirstOnly(Explorer):
    """Ends at the first violation."""

    def _guarded(self, where: str, check: Callable[[], None]) -> None:
        super()._guarded(where, check)
        if self.report.violations:
            raise FoundError(self.report.violations[0])


class Silent:
    """Files on which some calls do nothing."""

    def __init__(self, vfs: Any, *calls: str) -> None:
        self._vfs = vfs
        self.__dict__.update(dict.fromkeys(calls, lambda *_: None))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vfs, name)


def silent(owner: type, method: str, *calls: str) -> Patch:
    """In a method some calls to the files do nothing."""
    original = getattr(owner, method)

    def quiet(self: Any, *arguments: Any, **named: Any) -> Any:
        files = self._vfs
        self._vfs = Silent(files, *calls)
        try:
            return original(self, *arguments, **named)
        finally:
            self._vfs = files

    return lambda patch: patch.setattr(owner, method, quiet)


def remove_at_once(vfs: Vfs, directory: str, bases: Sequence[int], end: int) -> None:  # noqa: ARG001
    """Copies go without a tomb, the highest first."""
    retention._remove_files(vfs, directory, [*reversed(bases)], [])


def drop_the_rest(replacer: Replacer, segment: Any, offset: int, pace: Any) -> None:
    """Of a segment that is cut nothing stays."""


def short(self: SegmentRewriter) -> Rewritten:
    """A file without what waits to be written."""
    self._waiting.columns, self._waiting.offsets, self._waiting.rows = [], [], 0
    return FINISH(self)


FINISH = SegmentRewriter.finish
MUTANTS: dict[str, tuple[Patch, str]] = {
    "a rewritten file is not synced": (silent(SegmentRewriter, "finish", "fsync"), "recompress"),
    "the directory is not synced before copies go": (
        silent(Replacer, "_swap", "fsync_dir"),
        "merge",
    ),
    "copies go without a tomb": (
        lambda patch: patch.setattr(replacing, "drop_merged", remove_at_once),
        "merge",
    ),
    "what waits is not written": (
        lambda patch: patch.setattr(SegmentRewriter, "finish", short),
        "merge",
    ),
    "the rest of a cut segment is lost": (
        lambda patch: patch.setattr(deleting, "_rest", drop_the_rest),
        "delete_records",
    ),
    "changed segments are replaced all the same": (
        lambda patch: patch.setattr(Replacer, "_unchanged", lambda *_: True),
        "merge beside a deletion",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_step_that_is_left_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, where = MUTANTS[name]
    patch(monkeypatch)
    scenario, settings = SCENARIOS[where]
    explorer = FirstOnly(Random(SEED), samples=6, likely=0.5)
    with pytest.raises((FoundError, AssertionError)):
        explorer.run(name, new_store({"t": 2}, **settings), scenario)
