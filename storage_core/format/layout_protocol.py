"""What a layout must answer; everything else in the engine is written once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from ..config import StoreConfig
from ..io.byte_source import Source
from ..types import Extent
from ..vfs import Buffer
from .columns import Columns


class Chunk(NamedTuple):
    """So many ``rows`` of some columns, encoded for one vectored write.

    ``span`` counts the offsets they take up, holes included.
    """

    buffers: Sequence[Buffer]
    size: int
    rows: int
    max_timestamp: int
    span: int


class Place(NamedTuple):
    """Where a chunk will stand: offset of its first record, its segment, and what is durable."""

    offset: int
    segment_base: int
    recovery_point: int


class Layout(Protocol):
    """Names and codecs of one kind of log directory. Stateless; safe for several threads."""

    name: str

    def log_directory(self, topic: str, partition: int) -> str:
        """Directory of the segment files of a partition."""

    def encode(
        self,
        columns: Columns,
        row: int,
        place: Place,
        *,
        room: Callable[[int], int],
        most: int,
        config: StoreConfig,
    ) -> list[Chunk]:
        """Encode records from ``row`` on: about ``most`` bytes of them, as far as they fit.

        ``room`` tells how many bytes may follow so many.
        """

    def walk(
        self, source: Source, *, base: int, position: int, offset: int, verify: bool
    ) -> Iterator[Extent]:
        """Follow the log from ``position``, where ``offset`` is expected, to the source's end.

        Args:
            source: The segment's bytes.
            base: The segment's base offset.
            position: Where to begin; a record or frame starts there.
            offset: The offset that must be found there.
            verify: Check contents too, not just headers.

        Raises:
            BrokenFrameError: with ``position`` and ``offset`` of the first bytes that do not check.
        """

    def last_end(self, source: Source, *, base: int) -> int:
        """End offset of a sealed segment, from its last bytes where the layout allows.

        Raises:
            BrokenFrameError: the end cannot be made out.
        """

    def durable_claim(self, source: Source, *, base: int, position: int) -> int:
        """Highest end that sound frames after ``position`` say was durable before them; else 0."""

    def read(
        self,
        source: Source,
        *,
        base: int,
        position: int,
        offset: int,
        start: int,
        end: int,
        scan: bool = False,
    ) -> Iterator[DecodedFrame]:
        """Decode the frames that overlap ``start`` to ``end``, checked in full.

        ``position`` and ``offset`` say where to begin, as for ``walk``. The frames are whole: they
        may begin before ``start`` and end after ``end``. With ``scan`` the caller will want all.
        """


class DecodedFrame(NamedTuple):
    """Records of one frame; ``columns`` leaves out those without values.

    ``offsets`` is None when the records are dense from ``first_offset``.
    """

    first_offset: int
    span: int
    rows: int
    timestamp_type: int
    constant_timestamp: int
    offsets: pa.Array | None
    columns: Mapping[str, pa.Array]
