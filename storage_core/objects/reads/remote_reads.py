"""How reads of a store of objects cost few requests: one look a step, pins, reading ahead."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ..backend import ObjectBackend
from ..catalog import ObjectCatalog
from ..slices import parse_path
from .pins import decode_pin, encode_pin
from .read_ahead import Range, ReadAhead


class ObjectReads:
    """See ``RemoteReads``. Safe for several threads; the last plan to read ahead counts."""

    def __init__(self, backend: ObjectBackend, catalog: ObjectCatalog) -> None:
        self._backend = backend
        self._catalog = catalog
        self.ahead: ReadAhead | None = None

    def reading_once(self) -> AbstractContextManager[None]:
        return self._catalog.reading_once()

    def pinned(self, topic: str) -> bytes:
        log, state = self._catalog.get(topic)
        return encode_pin(log.name, self._catalog.require(topic, state), state)

    def pin(self, topic: str, data: bytes) -> None:
        self._catalog.pin(topic, decode_pin(data))

    def read_ahead(self, places: Sequence[tuple[str, int, int]]) -> None:
        ranges = []
        for path, begin, end in places:
            place = parse_path(path)
            stop = place.position + min(end, place.size)
            ranges.append(Range(place.key, place.position + max(begin, 0), stop))
        self.close()
        self.ahead = ReadAhead(self._backend, ranges)

    def container(self, path: str) -> str:
        return parse_path(path).key

    def close(self) -> None:
        """Stop reading ahead."""
        if self.ahead is not None:
            self.ahead.close()
        self.ahead = None
