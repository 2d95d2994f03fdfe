"""What all tests share."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import settings

from storage_core import StoreConfig
from storage_core.engine.native import NativeEngine
from storage_core.vfs import Vfs
from tests.crash.recording import MEMORY

# Seconds belong to the benchmarks: a busy machine must not fail a property.
settings.register_profile("cursus", deadline=None)
settings.load_profile("cursus")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: "slow" not in item.keywords)


def pytest_collection_finish() -> None:
    """All modules are loaded and stay: the collector need not look at them again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def crashed_stores_let_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store that a test does not close is a process that died: the system closes its files.

    Only that is done here, nothing is written: what a crash leaves on the disk stays as it is.
    """
    opened: list[NativeEngine] = []
    made = NativeEngine.__init__

    def remember(self: NativeEngine, vfs: Vfs, config: StoreConfig) -> None:
        made(self, vfs, config)
        if vfs.root != MEMORY:
            opened.append(self)

    monkeypatch.setattr(NativeEngine, "__init__", remember)
    yield
    for engine in opened:
        engine._flusher.stop()
        for log in engine._logs.all():
            # Tests let these calls fail, too.
            with suppress(Exception):
                log.close()
