"""A store that a test does not close is a process that crashed: the system closes its files.

Only that is done here, nothing is written: what a crash leaves on the disk stays as it is.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from storage_core import StoreConfig
from storage_core.engine.native import NativeEngine
from storage_core.vfs import Vfs
from tests.crash.explorer.recording import MEMORY

_open: list[NativeEngine] = []


def remember_stores(patch: pytest.MonkeyPatch) -> None:
    """Note every store that is opened on a real disk from now on."""
    made = NativeEngine.__init__

    def remember(self: NativeEngine, vfs: Vfs, config: StoreConfig) -> None:
        made(self, vfs, config)
        if vfs.root != MEMORY:
            _open.append(self)

    patch.setattr(NativeEngine, "__init__", remember)


def let_go() -> None:
    """Close the files of all stores that were opened so far: a user may have 1,024 files open."""
    while _open:
        engine = _open.pop()
        engine._flusher.stop()
        for log in engine._logs.all():
            # Tests let these calls fail, too.
            with suppress(Exception):
                log.close()
