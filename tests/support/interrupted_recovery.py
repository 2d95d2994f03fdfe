"""Recovery that crashes before each of its changes, and runs again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import on, segments, tree

Check = Callable[[Path], object]


def recover_after_every_crash(
    original: Path, work: Path, *, crashed: Check | None = None, recovered: Check | None = None
) -> None:
    """Assert that a recovery ends in the same bytes, wherever the one before it crashed.

    Args:
        original: a store that needs recovery; it stays as it is.
        work: where the copies go.
        crashed: a check of each store after the crash.
        recovered: a check of each store after the second recovery.
    """
    whole = work / "whole"
    shutil.copytree(original, whole)
    steps = _recover(whole)
    expected = tree(segments(whole))
    assert steps > 10
    for count in range(steps):
        path = work / f"crash-{count}"
        shutil.copytree(original, path)
        with pytest.raises(CrashError):
            _recover(path, count)
        if crashed is not None:
            crashed(path)
        _recover(path)
        assert tree(segments(path)) == expected
        if recovered is not None:
            recovered(path)
        shutil.rmtree(path)


def _recover(path: Path, crash_after: int | None = None) -> int:
    """Repair a store after a reboot; return how many changes that took."""
    vfs = faulty(path)
    vfs.boot, vfs.crash_after = os.urandom(16), crash_after
    on(vfs).repair()
    return vfs.changes
