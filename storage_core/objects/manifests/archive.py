"""The archive of a log: which manifests hold its older slices.

Manifest k holds, of every partition, the slices between the ends of manifest k-1 and its own. So
one is needed for an offset. The archive is part of the state: commits change it. A slice that was
replaced since stands in the state, and hides what the manifests say of its offsets.
"""

from __future__ import annotations

import bisect
import errno
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...io.caching import LruCache
from ...types import Int64s, TimeBounds
from ..backend import ObjectBackend
from ..names import DATA
from ..slices import Slice
from .block import SliceColumns, decode_block, joined, split_blocks

_BLOCK_COLUMNS = 7
_POSITION, _SIZE, _FIRST, _LAST, _COUNT, _SMALLEST, _LARGEST = range(_BLOCK_COLUMNS)
# Blocks of 4,096 slices in memory: 400 kB each.
_CACHED_BLOCKS = 256
_CACHED_BYTES = 64 << 20


class Manifest(NamedTuple):
    """What the state says of one manifest: where each partition ends in it, and its blocks."""

    key: str
    ends: Int64s
    blocks: Int64s
    objects: tuple[tuple[str, str], ...] = ()
    """Ranges of keys, both ends included, in which the objects of its slices stand."""

    @property
    def slices(self) -> int:
        return int(self.blocks[:, _COUNT].sum())

    def end(self, partition: int) -> int:
        """The offset after the last slice of a partition here or in a manifest before."""
        return int(self.ends[partition]) if partition < len(self.ends) else 0

    def may_name(self, keys: Sequence[str]) -> bool:
        """Whether a slice here can stand in one of these objects, which are sorted."""
        return any(
            bisect.bisect_right(keys, last) > bisect.bisect_left(keys, first)
            for first, last in self.objects
        )

    def blocks_of(self, partition: int) -> tuple[int, int]:
        """The blocks that can have slices of a partition: the first, and the one after the last."""
        first = int(np.searchsorted(self.blocks[:, _LAST], partition))
        after = int(np.searchsorted(self.blocks[:, _FIRST], partition, side="right"))
        return first, max(first, after)

    def bounds(self, partition: int | None = None) -> TimeBounds | None:
        """Bounds of the timestamps, of one partition at least; None if it has no slices here."""
        low, high = (0, len(self.blocks)) if partition is None else self.blocks_of(partition)
        found = self.blocks[low:high]
        if not len(found):
            return None
        return TimeBounds(int(found[:, _SMALLEST].min()), int(found[:, _LARGEST].max()))


def manifest_fields(found: Manifest) -> dict[str, Any]:
    """A manifest as a document names it."""
    return {
        "key": found.key,
        "ends": found.ends.tolist(),
        "blocks": found.blocks.tolist(),
        "objects": found.objects,
    }


def ranges_of(keys: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The ranges of some keys: of uploaded objects, and of commits with inline slices."""
    kinds = [
        [key for key in keys if key.startswith(DATA) is uploaded] for uploaded in (True, False)
    ]
    return tuple((min(kind), max(kind)) for kind in kinds if kind)


def manifest_from(fields: Mapping[str, Any]) -> Manifest:
    """The inverse of ``manifest_fields``.

    Raises:
        ValueError, TypeError, KeyError: a field is missing or wrong.
    """
    key, ends = fields["key"], np.array(fields["ends"], np.int64)
    blocks = np.array(fields["blocks"], np.int64)
    if not isinstance(key, str) or ends.ndim != 1:
        raise ValueError(f"a manifest has key {key!r:.200} and {ends.ndim} dimensions of ends")
    if blocks.ndim != 2 or blocks.shape[1] != _BLOCK_COLUMNS or not len(blocks):
        raise ValueError(f"the blocks of {key} are {blocks.shape} numbers")
    return Manifest(key, ends, blocks, tuple((str(a), str(b)) for a, b in fields["objects"]))


class ManifestReader:
    """Reads manifests, which never change. Safe for several threads.

    The first blocks that are wanted of a manifest are read alone, for a lookup. The second time all
    of it is read, while there is room: a plan wants all blocks.
    """

    def __init__(self, backend: ObjectBackend) -> None:
        self._backend = backend
        self._blocks: LruCache[tuple[str, int], SliceColumns] = LruCache(_CACHED_BLOCKS)
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._whole: dict[str, memoryview] = {}

    def columns(self, found: Manifest, low: int, high: int) -> list[SliceColumns]:
        """The blocks from ``low`` to ``high`` (exclusive), with at most one request.

        Raises:
            FileNotFoundError: another manifest has taken its place since.
        """
        fetched: list[tuple[int, memoryview]] = []

        def decoded(at: int) -> SliceColumns:
            if not fetched:
                fetched.append(self._bytes(found, at, high))
            first, data = fetched[0]
            begin = int(found.blocks[at, _POSITION]) - first
            return decode_block(data[begin : begin + int(found.blocks[at, _SIZE])], found.key)

        return [self._blocks.get((found.key, at), partial(decoded, at)) for at in range(low, high)]

    def stream(self, found: Manifest) -> Iterator[SliceColumns]:
        """All blocks, with one request, and none of them kept in memory."""
        whole = self._whole.get(found.key) or self._fetch(found, 0, len(found.blocks))
        for data in split_blocks(whole, found.blocks):
            yield decode_block(data, found.key)

    def _bytes(self, found: Manifest, low: int, high: int) -> tuple[int, memoryview]:
        """Bytes with some blocks, and their position in the manifest."""
        with self._lock:
            whole, asked = self._whole.get(found.key), found.key in self._asked
            self._asked.add(found.key)
        if whole is None and asked and self._has_room(found):
            whole = self._fetch(found, 0, len(found.blocks))
            with self._lock:
                self._whole[found.key] = whole
        if whole is not None:
            return int(found.blocks[0, _POSITION]), whole
        return int(found.blocks[low, _POSITION]), self._fetch(found, low, high)

    def _has_room(self, found: Manifest) -> bool:
        with self._lock:
            used = sum(map(len, self._whole.values()))
        return used + int(found.blocks[:, _SIZE].sum()) <= _CACHED_BYTES

    def _fetch(self, found: Manifest, low: int, high: int) -> memoryview:
        begin = int(found.blocks[low, _POSITION])
        size = int(found.blocks[low:high, _SIZE].sum())
        try:
            return self._backend.get_ranges(found.key, [(begin, size)]).pieces[0]
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "the manifest is missing", found.key) from error


class Archive:
    """The manifests of a log, in order. A value."""

    def __init__(self, manifests: Sequence[Manifest], reader: ManifestReader) -> None:
        self.manifests = tuple(manifests)
        self.reader = reader
        self._ends: dict[int, list[int]] = {}

    @property
    def slices(self) -> int:
        """How many slices it holds; some may have been replaced or removed since."""
        return sum(each.slices for each in self.manifests)

    def ends(self, partition: int) -> list[int]:
        """Where a partition ends in each manifest; they never fall."""
        if partition not in self._ends:
            self._ends[partition] = [each.end(partition) for each in self.manifests]
        return self._ends[partition]

    def end(self, partition: int) -> int:
        """The offset after the last slice of a partition."""
        return self.manifests[-1].end(partition) if self.manifests else 0

    def slices_of(self, number: int, partition: int) -> list[Slice]:
        """The slices of a partition in one manifest, as it says."""
        found = self.manifests[number]
        parts = self.reader.columns(found, *found.blocks_of(partition))
        return [each for part in parts for each in part.slices(partition)]

    def columns(self, number: int) -> SliceColumns:
        """All slices of one manifest, as it says."""
        return joined(list(self.reader.stream(self.manifests[number])))
