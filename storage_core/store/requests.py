"""How the users of a store in an object store make few requests. In a directory it does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ..io.io_errors import typed_metadata_errors

if TYPE_CHECKING:
    from ..engine.api import Engine


class StoreRequests:
    """What planners and their tasks tell a store about what they will ask."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def reading_once(self) -> AbstractContextManager[None]:
        """Inside it, this thread reads the state of each log at most once.

        For a planner that asks many questions: each costs a request in an object store. The answers
        are of the first look. In a directory nothing changes.
        """
        remote = self._engine.remote
        return nullcontext() if remote is None else remote.reading_once()

    def pinned(self, topic: str) -> bytes | None:
        """What tasks in other processes pass to ``Store.open``; None where they need nothing."""
        remote = self._engine.remote
        with typed_metadata_errors(topic):
            return None if remote is None else remote.pinned(topic)

    def _pin(self, topic: str, data: bytes) -> None:
        if self._engine.remote is not None:
            self._engine.remote.pin(topic, data)

    def read_ahead(self, places: Sequence[tuple[str, int, int]]) -> None:
        """Say what ``read_slices`` will read: paths of segments, their first and last bytes.

        They must come in the order of the reads. An object store fetches them ahead, in few
        requests. It is a hint: what is left out is read all the same.
        """
        if self._engine.remote is not None:
            self._engine.remote.read_ahead(places)

    def container(self, path: str) -> str | None:
        """The object that a segment of an object store stands in, with others; else None."""
        remote = self._engine.remote
        return None if remote is None else remote.container(path)
