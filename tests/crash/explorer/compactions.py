"""Compaction under power cuts: after every crash, and for every reader at every call, each key's
last record is there, and nothing that was never written.

It makes holes, which no other story does, so it has an explorer of its own. Records of native
topics, rows of typed topics and records in a cursus broker's directory are played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pyarrow as pa

from storage_core import Store
from tests.crash.explorer.disk import Choose, kept
from tests.crash.explorer.explorer import choices
from tests.crash.explorer.invariants import CONFIG, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.typed_rows import nothing
from tests.support.faulty_vfs import CrashError
from tests.support.stores import rows
from tests.support.typed.typed_segments import rows_as_batch

Records = dict[int, tuple[bytes | None, bytes | None]]
"""Key and value by offset. A tombstone has no value; of a typed row, the other columns are it."""
COMPACTED = {"cleanup_policy": "compact", "delete_retention_ms": 0}
EVENTS = pa.schema([("user", pa.string()), ("n", pa.int32()), ("tags", pa.list_(pa.string()))])
WIDER = pa.schema([*EVENTS, ("a", pa.int64())])


def records_of(store: Store) -> Records:
    """What a reader sees."""
    if not store.topic("t").is_typed:
        found = rows(store.read("t", 0))
        return {row["offset"]: (row["key"], row["value"]) for row in found}
    schema = store.schema("t")
    assert schema is not None
    names = ("_offset", *schema.arrow.names)
    return dict(
        _shown(row.pop("_offset"), row)
        for batch in store.read("t", 0, columns=names)
        for row in batch.to_pylist()
    )


def _shown(offset: int, row: dict[str, object]) -> tuple[int, tuple[bytes, bytes | None]]:
    """A row as a key and a value; a column that is null looks like one that is not there."""
    key = repr(row.pop("user")).encode()
    value = {name: each for name, each in sorted(row.items()) if each is not None}
    return offset, (key, repr(value).encode() if value else None)


def check_compacted(seen: Records, written: Records, upto: int) -> None:
    """Nothing is there that was not written; each key has its last value, or what is left of it."""
    assert all(written[offset] == record for offset, record in seen.items())
    last = {key: offset for offset, (key, _) in written.items() if offset < upto}
    for offset, (key, value) in written.items():
        stays = key is None or offset >= upto or (last[key] == offset and value is not None)
        assert offset in seen or not stays, f"offset {offset} of {key!r} is gone"


class CompactionExplorer:
    """Cuts the power at every call while a keyed topic is compacted, and recovers."""

    def __init__(
        self,
        rng: Random,
        samples: int,
        opened: Callable[[MemoryVfs], Store],
        *,
        first_only: bool = False,
    ) -> None:
        self.rng, self.samples, self.opened = rng, samples, opened
        self.first_only = first_only
        self.states, self.violations = 0, list[str]()

    def run(
        self, vfs: MemoryVfs, written: Records, upto: int, work: Callable[[Store], None]
    ) -> None:
        calls = 0

        def explore(kind: str, path: str) -> None:
            nonlocal calls
            calls += 1
            vfs.hook = None
            where = f"call {calls} ({kind} {path})"
            with self._guarded(where):
                check_compacted(records_of(self.opened(vfs)), written, upto)
            for cut in self._cuts(vfs, self.samples) if self.rng.random() < 0.6 else ():
                with self._guarded(f"{where}, cut"):
                    self._recover(cut, written, upto, work)
            with self._guarded(f"{where}, killed"):
                self._recover(vfs.kill(), written, upto, work)
            vfs.hook = explore

        vfs.hook = explore
        work(self.opened(vfs))
        explore("end", "")

    def _cuts(self, vfs: MemoryVfs, samples: int) -> Iterator[MemoryVfs]:
        for choice in choices(vfs.unsynced(), self.rng, samples):
            choose: Choose = lambda _, choice=choice: choice  # type: ignore[misc]  # noqa: E731
            yield vfs.power_cut(choose, self.rng.randbytes(16))

    def _recover(
        self, vfs: MemoryVfs, written: Records, upto: int, work: Callable[[Store], None]
    ) -> None:
        self.states += 1
        if self.rng.random() < 0.3:
            vfs.crash_after = self.rng.randrange(1, 60)
            try:
                work(self.opened(vfs))
            except CrashError:
                vfs = self.rng.choice([*self._cuts(vfs, 3)])
            vfs.crash_after = None
        store = self.opened(vfs)
        store.append_columns("t", 0, nothing(store, "t"))
        check_compacted(records_of(store), written, upto)
        assert [found for found in store.check() if found.severity == "error"] == []
        work(store)
        left = records_of(store)
        check_compacted(left, written, upto)
        keyed = [key for offset, (key, _) in left.items() if key is not None and offset < upto]
        assert len(keyed) == len(set(keyed)), "a key is there twice after all is done"

    @contextmanager
    def _guarded(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.violations.append(f"{where}: {type(error).__name__}: {error}")
            if self.first_only:
                raise AssertionError(self.violations[0]) from error


def compacted_at_every_crash(
    store: Store, gone: bytes | None, explorer: CompactionExplorer, work: Callable[[Store], None]
) -> None:
    """Fill a topic with few keys, the last value of one of them ``gone``, and explore ``work``."""
    written: Records = {}
    for number in range(4):
        keys = [b"a", None, b"b%d" % (number % 2), b"gone"]
        values = [b"%d-%d" % (number, n) for n in range(3)] + [b"x" if number < 2 else gone]
        first = store.append("t", 0, values, keys=keys).start
        written |= {first + n: (keys[n], values[n]) for n in range(4)}
        store.roll("t", 0)
    last = store.append("t", 0, [b"active"], keys=[b"a"]).start
    written[last] = (b"a", b"active")
    vfs = store.vfs
    assert isinstance(vfs, MemoryVfs)
    explorer.run(vfs.power_cut(kept, vfs.boot), written, last, work)


def compacted_records(rng: Random, samples: int, *, first_only: bool = False) -> CompactionExplorer:
    """Records of a native topic, the last one of a key a tombstone."""
    explorer = CompactionExplorer(rng, samples, _opened, first_only=first_only)
    vfs = new_store({"t": 1}, **COMPACTED)
    compacted_at_every_crash(_opened(vfs), None, explorer, _compact_and_merge)
    return explorer


def compacted_rows(rng: Random, samples: int, *, first_only: bool = False) -> CompactionExplorer:
    """Rows of a typed topic in two schema versions: a tombstone, and rows that look nearly so."""
    explorer = CompactionExplorer(rng, samples, _opened, first_only=first_only)
    vfs = new_store({"t": 1}, schema=EVENTS, key_columns=["user"], **COMPACTED)
    store, written = _opened(vfs), Records()
    for number in range(4):
        if number == 2:
            store.alter_topic("t", add_columns=pa.schema([("a", pa.int64())]))
        more = {"a": number} if number > 1 else {}
        last = {} if number > 1 else {"n": number}
        written |= _append(
            store,
            [
                {"user": "often", "n": number, **more},
                {"user": None, "n": number},
                {"user": f"in turn {number % 2}", "tags": [str(number)]},
                {"user": f"first column null {number % 2}", **(more or {"tags": []})},
                {"user": "gone", **last},
            ],
        )
        store.roll("t", 0)
    upto = max(written) + 1
    written |= _append(store, [{"user": "often", "n": 99, "tags": ["active"], "a": 99}])
    explorer.run(vfs.power_cut(kept, vfs.boot), written, upto, _compact_and_merge)
    return explorer


def _append(store: Store, group: list[dict[str, object]]) -> Records:
    schema = WIDER if any("a" in row for row in group) else EVENTS
    first = store.append_table("t", rows_as_batch(group, schema), partition=0)[0].start
    return dict(_shown(first + at, dict(row)) for at, row in enumerate(group))


def _opened(vfs: MemoryVfs) -> Store:
    return Store(vfs, CONFIG)


def _compact_and_merge(store: Store) -> None:
    store.compact("t", min_dirty_ratio=0)
    store.compact("t", min_dirty_ratio=0)
    store.merge("t")


def compacted_broker(rng: Random, samples: int, *, first_only: bool = False) -> CompactionExplorer:
    """The same in a cursus broker's directory, which keeps no null values."""
    config = CONFIG.override({"cleanup_policy": "compact"})

    def opened(vfs: MemoryVfs) -> Store:
        return Store(vfs, config, "cursus-broker")

    def work(store: Store) -> None:
        store.compact("t", min_dirty_ratio=0)

    store = opened(MemoryVfs())
    store.create_topic("t")
    explorer = CompactionExplorer(rng, samples, opened, first_only=first_only)
    compacted_at_every_crash(store, b"y", explorer, work)
    return explorer


COMPACTIONS: dict[str, Callable[..., CompactionExplorer]] = {
    "compaction": compacted_records,
    "compaction of rows": compacted_rows,
    "compaction in cursus-broker": compacted_broker,
}
