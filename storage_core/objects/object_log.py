"""The log of one partition, as handlers use it."""

from __future__ import annotations

from collections.abc import Callable

from ..config import StoreConfig
from ..format.columns import Columns
from ..types import ActiveFile, OffsetRange
from .state import PartitionState


class ObjectLog:
    """Appends to one partition. Every append is a commit: durable and visible on return."""

    def __init__(
        self,
        prefix: str,
        config: StoreConfig,
        state: Callable[[], PartitionState],
        append: Callable[[Columns], OffsetRange],
    ) -> None:
        self.base_name = prefix
        self.config = config
        self._state = state
        self._append = append

    @property
    def active(self) -> ActiveFile:
        """The last slice; it never grows."""
        state = self._state()
        last = state.last()
        if last is None:
            return ActiveFile(state.end, 0, self.base_name)
        return ActiveFile(last.base, last.size, last.path)

    @property
    def recovery_point(self) -> int:
        return self._state().end

    def append(self, columns: Columns) -> OffsetRange:
        return self._append(columns)

    def flush(self) -> None:
        """Nothing waits."""

    def roll(self) -> bool:
        """Nothing to seal."""
        return False

    def close(self) -> None:
        """Nothing is held open."""
