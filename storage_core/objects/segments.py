"""The slices of a partition as segments: what its reader lists and opens."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ..errors import BrokenFrameError
from ..format.columns import DecodedFrame
from ..format.frame_scan import StoredFrame
from ..format.selection import Selection
from ..format.sparse_index import NO_INDEX, SparseIndex, TimeIndex, parse_sealed
from ..format.typed_frames import bounds_of_place
from ..io.caching import LruCache
from ..segments.listing import Listing
from ..segments.segment_reader import FrameReader
from ..types import NO_TIMESTAMP, OffsetPosition, TimeBounds
from .backend import ObjectBackend
from .document import damaged
from .object_source import ObjectSource
from .reads.read_ahead import ReadAhead
from .slices import Place, Slice, parse_path
from .state import PartitionState

_LAST_TIMESTAMP = (1 << 63) - 1
_NOWHERE = Place("", 0, 0, 0, 0, 0)
# Windows of a partition in memory as listings, each of some thousand slices.
_LISTED_WINDOWS = 4
Indexes = tuple[SparseIndex, TimeIndex | None]
IndexCache = LruCache[str, Indexes]
Frame = TypeVar("Frame", DecodedFrame, StoredFrame)
OnDamage = Callable[[str, int, int], None]
"""Called with a range of an object (key, position, size) whose frames are damaged."""


def forget_nothing(key: str, position: int, size: int) -> None:
    """Nothing is kept that could be damaged."""


class SliceReader(FrameReader):
    """One slice opened for reading."""

    def __init__(
        self,
        backend: ObjectBackend,
        place: Place,
        cache: IndexCache,
        on_missing: Callable[[], object],
        ahead: ReadAhead | None = None,
        on_damage: OnDamage = forget_nothing,
    ) -> None:
        source = ObjectSource(backend, place.key, place.position, place.size, on_missing, ahead)
        super().__init__(place.base, source)
        self._backend = backend
        self._place = place
        self._cache = cache
        self._ranges = source
        self._on_damage = on_damage

    def frames(
        self, start: int, end: int, selection: Selection, *, scan: bool = False
    ) -> Iterator[DecodedFrame]:
        if not self._place.key and start < end:
            # The log did reach so far: the topic was deleted since.
            raise FileNotFoundError(errno.ENOENT, "no slice holds these records")
        return self._checked(super().frames(start, end, selection, scan=scan))

    def _walk(self, at: OffsetPosition) -> Iterator[StoredFrame]:
        return self._checked(super()._walk(at))

    def _checked(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        try:
            yield from frames
        except BrokenFrameError:
            # They may be sound in the store: the next try reads them there.
            self._on_damage(self._place.key, self._place.position, self._place.size)
            raise

    def entries(self) -> SparseIndex:
        return self._indexes()[0]

    def locate(self, offset: int) -> OffsetPosition:
        if offset > self.base:
            # The record is before the next entry: one request gets all up to there.
            index = self.entries()
            position = index.floor(offset, self.base).position
            at = int(np.searchsorted(index.positions, position, side="right"))
            end = int(index.positions[at]) if at < len(index.positions) else self.size
            self._ranges.expect(position, end - position)
        return super().locate(offset)

    def known_times(self) -> TimeIndex | None:
        return self._indexes()[1]

    def close(self) -> None:
        self._ranges.close()

    def _indexes(self) -> Indexes:
        if not self._place.index_bytes:
            return NO_INDEX, None
        key = f"{self._place.key}@{self._place.base}:{self._place.position}"
        return self._cache.get(key, self._load)

    def _load(self) -> Indexes:
        """Both indexes in one request; if they are damaged, the frames alone are read."""
        key, base, position, size, index_bytes, time_bytes = self._place
        found = self._backend.get_ranges(key, [(position + size, index_bytes + time_bytes)])
        data = bytes(found.pieces[0])
        offsets = parse_sealed("offset", data[:index_bytes], size)
        times = parse_sealed("time", data[index_bytes:], size)
        return (
            NO_INDEX if offsets is None else SparseIndex(offsets[0] + base, offsets[1]),
            None if times is None else TimeIndex(times[0], times[1] + base),
        )


class _Window(NamedTuple):
    """One window of a partition as a listing."""

    state: PartitionState
    listing: Listing
    bounds: dict[str, TimeBounds]


class ObjectSegments:
    """The slices of one partition, for its reader. Safe for several threads.

    A listing ends with an empty segment, because no slice ever grows. A log with manifests is
    listed window by window.

    Args:
        backend: The objects.
        state: The partition in the last known state of its log.
        refresh: Reads the state again; called when an object is missing.
        cache: Parsed indexes.
        ahead: What is being read ahead, if anything.
        on_damage: Forgets a range that a cache may have.
    """

    def __init__(
        self,
        backend: ObjectBackend,
        state: Callable[[], PartitionState],
        refresh: Callable[[], object],
        cache: IndexCache,
        ahead: Callable[[], ReadAhead | None] = lambda: None,
        on_damage: OnDamage = forget_nothing,
    ) -> None:
        self._backend = backend
        self._ahead = ahead
        self._state = state
        self._refresh = refresh
        self._cache = cache
        self._windows: LruCache[tuple[int, int], _Window] = LruCache(_LISTED_WINDOWS)
        self._on_damage = on_damage

    def listing(self) -> Listing:
        return self._sound(lambda state: _listed(state, state.all()).listing)

    def start(self) -> int:
        return self._state().start

    def part(self, offset: int) -> Listing:
        return self._sound(lambda state: self._at(state, offset).listing)

    def parts(self, start: int, end: int, times: TimeBounds) -> Iterator[Listing]:
        state = self._state()
        for number in range(state.windows):
            low, high = state.window_bounds(number)
            is_last = number == state.windows - 1
            if not is_last and not (high > start and high > state.start and low < end):
                continue
            if not is_last and not state.may_have(number, times):
                continue
            try:
                yield self._window(state, number).listing
            except FileNotFoundError:  # another manifest has the slices by now
                place = max(low, state.start)
                while place < min(high, end):
                    found = self.part(place)
                    if found.bases[-1] <= place:
                        raise  # the topic was deleted
                    yield found
                    place = found.bases[-1]

    def _at(self, state: PartitionState, offset: int) -> _Window:
        return self._window(state, state.window_at(max(offset, state.start)))

    def _window(self, state: PartitionState, number: int) -> _Window:
        # A window keeps its state, so no other one can have this id.
        key = (id(state), number)
        return self._windows.get(key, lambda: _listed(state, state.window(number)))

    def _sound(self, find: Callable[[PartitionState], Listing]) -> Listing:
        """What a state says; if later commits have replaced its manifests, what the next one says.

        Raises:
            DamagedMetadataError: a manifest of the last state is missing.
        """
        while True:
            state = self._state()
            try:
                return find(state)
            except FileNotFoundError as error:
                self._refresh()
                if self._state().archive is state.archive:
                    raise damaged(error.filename, "the manifest is missing") from error

    def open(self, base: int, listing: Listing) -> SliceReader:
        path = listing.path(base)
        place = parse_path(path) if path else _NOWHERE._replace(base=base)
        return SliceReader(
            self._backend, place, self._cache, self._refresh, self._ahead(), self._on_damage
        )

    def known_times(self) -> Mapping[tuple[int, int], TimeBounds]:
        """None: the commits say which times a slice has."""
        return {}

    def time_bounds(self, base: int, listing: Listing) -> TimeBounds:
        path, nowhere = listing.path(base), TimeBounds(NO_TIMESTAMP, _LAST_TIMESTAMP)
        if not path:
            return nowhere
        try:
            return self._at(self._state(), base).bounds.get(path, nowhere)
        except FileNotFoundError:
            return nowhere

    def may_match(self, base: int, end: int, listing: Listing, selection: Selection) -> bool:
        """By offsets and times only: frames have their own statistics."""
        where = selection.where
        if where is None:
            return True
        bounds = bounds_of_place(selection, base, end, self.time_bounds(base, listing))
        return where.may_match({name: bounds.get(name) for name in where.columns}, end - base)

    def end_of(self, base: int, listing: Listing) -> int:
        return listing.following(base) or base

    def sizes(self, listing: Listing) -> list[int | None]:
        return [parse_path(path).size if path else 0 for path in listing.paths()]

    def explained(self, base: int, listing: Listing, error: BrokenFrameError) -> BrokenFrameError:  # noqa: ARG002
        return error

    def raise_damage(self) -> None:
        """Never raises: nothing stands after the last commit."""


def _listed(state: PartitionState, slices: Sequence[Slice]) -> _Window:
    bases = [max(each.base, state.start) for each in slices]
    names = (*(each.path for each in slices), "")
    end = slices[-1].end if slices else state.end
    bounds = {
        name: TimeBounds(each.smallest, each.largest)
        for name, each in zip(names, slices, strict=False)
    }
    return _Window(state, Listing("", (*bases, end), names=names), bounds)
