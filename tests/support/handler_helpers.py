"""Short ways to make handlers and hold up the disk under them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage_core import Store, StoreConfig
from storage_core.handlers.disk_handler import DiskHandler
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.stores import TOPIC, make_store, reopen, values

NEVER_MS = 3_600_000
"""A linger that no test outlives."""


def handler_on(
    vfs: FaultyVfs, topic_settings: Mapping[str, Any] | None = None, **settings: Any
) -> DiskHandler:
    """A handler of partition 0 of the topic ``t``, in a new store on a faulty backend."""
    make_store(Path(vfs.root), **(topic_settings or {})).close()
    return DiskHandler(Store(vfs, StoreConfig(**settings)), TOPIC, 0)


def new_handler(path: Path, **settings: Any) -> DiskHandler:
    """A handler of partition 0 of the topic ``t``, in a new store."""
    return handler_on(faulty(path), **settings)


def stored(path: Path) -> list[Any]:
    """The values that another process sees."""
    with reopen(path) as store:
        return values(store)


class Gate:
    """A hook that stops calls of one kind until it is opened."""

    def __init__(self, kind: str, path: str) -> None:
        self._kind, self._path = kind, path
        self._reached, self._open = threading.Event(), threading.Event()

    def __call__(self, kind: str, path: str) -> None:
        if kind == self._kind and path.endswith(self._path):
            self._reached.set()
            assert self._open.wait(30)

    def wait_until_reached(self) -> None:
        """Wait until a thread stands before the gate."""
        assert self._reached.wait(30)

    def open(self) -> None:
        """Let everybody through from now on."""
        self._open.set()
