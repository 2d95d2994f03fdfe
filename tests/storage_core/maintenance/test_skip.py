"""Giving up damaged records: exactly those, never by default, and readers say so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from storage_core import Store
from storage_core.errors import ConfigError, DamagedLogError, InvalidRecordError
from storage_core.format.file_names import segments_directory
from tests.crash.explorer.disk import Choice, Item, kept, lost
from tests.crash.explorer.invariants import CONFIG, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.storage_core.segments.test_find_damage import BODY, HEADER, damage, ranges, two_segments
from tests.support.cli_runner import LAYOUTS
from tests.support.stores import (
    TOPIC,
    after_reboot,
    errors,
    names,
    offsets,
    overwrite,
    reopen,
    segment,
    segments,
    tree,
)

ALL = range(100)


@pytest.mark.parametrize("base", [0, 50], ids=["sealed", "active"])
@pytest.mark.parametrize("byte", [HEADER, BODY], ids=["header", "body"])
def test_readers_go_on_after_the_damage_and_say_so(
    tmp_path: Path, base: int, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = two_segments(tmp_path)
    damage(tmp_path, store, base, (2, byte))
    before = segment(tmp_path, base).read_bytes()
    with pytest.raises(DamagedLogError, match="cursus skip gives up only the damaged records"):
        offsets(store)
    start, end = base + 20, base + 30
    saved = store.skip_damaged(TOPIC, 0, start, end)
    assert offsets(store) == [n for n in ALL if not start <= n < end]
    assert f"t-0: records {start} to {end - 1} were damaged and are skipped." in caplog.text
    caplog.clear()
    assert offsets(store, start=end) == list(range(end, 100))
    assert offsets(store, end=start) == list(range(start))
    assert caplog.text == ""
    after = segment(tmp_path, base).read_bytes()
    assert saved is not None
    at = int(saved.rpartition("-")[2].removesuffix(".broken"))
    bad = (tmp_path / saved).read_bytes()
    assert bad == before[at : at + len(bad)]
    assert after[:at] + bad + after[at + len(bad) :] == before
    assert [(each.start, each.end) for each in store.skipped(TOPIC, 0)] == [(start, end)]
    assert (ranges(store), store.check()) == ([], [])


@pytest.mark.parametrize(
    ("start", "end"), [(20, 29), (19, 30), (20, 40), (0, 100), (30, 40), (20, 20)]
)
def test_only_the_exact_range_is_given_up(tmp_path: Path, start: int, end: int) -> None:
    store = two_segments(tmp_path)
    damage(tmp_path, store, 0, (2, BODY))
    before = tree(segments(tmp_path))
    with pytest.raises(InvalidRecordError, match=r"Damaged, without the end: 20 to 30\."):
        store.skip_damaged(TOPIC, 0, start, end)
    assert tree(segments(tmp_path)) == before
    assert store.skipped(TOPIC, 0) == []


def test_sound_records_cannot_be_given_up(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    with pytest.raises(InvalidRecordError, match="Nothing is damaged"):
        store.skip_damaged(TOPIC, 0, 20, 30)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "native"])
def test_the_files_of_brokers_are_left_alone(tmp_path: Path, layout: str) -> None:
    with Store.open(tmp_path, layout=layout, create=True) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, [b"x"])
        for call in (lambda: store.damage(TOPIC, 0), lambda: store.skip_damaged(TOPIC, 0, 0, 1)):
            with pytest.raises(ConfigError, match="only a native store has frames"):
                call()


@pytest.mark.parametrize("number", [2, 4], ids=["middle", "last"])
def test_writers_that_could_not_recover_go_on(tmp_path: Path, number: int) -> None:
    store = two_segments(tmp_path)
    damage(tmp_path, store, 50, (number, HEADER))
    start, end = 50 + 10 * number, 60 + 10 * number
    rebooted = after_reboot(tmp_path)
    with pytest.raises(DamagedLogError):
        rebooted.append(TOPIC, 0, [b"x"])
    rebooted.skip_damaged(TOPIC, 0, start, end)
    assert rebooted.append(TOPIC, 0, [b"new"]).start == 100
    assert offsets(rebooted) == [n for n in range(101) if not start <= n < end]
    assert errors(rebooted) == []


def test_a_writer_that_has_the_file_open_goes_on(tmp_path: Path) -> None:
    writer = two_segments(tmp_path)
    damage(tmp_path, writer, 50, (4, BODY))
    with reopen(tmp_path) as other:
        other.skip_damaged(TOPIC, 0, 90, 100)
    assert writer.append(TOPIC, 0, [b"new"]).start == 100
    assert offsets(writer) == [*range(90), 100]
    assert offsets(reopen(tmp_path)) == [*range(90), 100]


def test_a_missing_file_and_a_lost_end_can_be_given_up(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"x"] * 10)
    store.close()
    segment(tmp_path, 50).unlink()
    overwrite(segment(tmp_path, 100), lambda data: data.__delitem__(slice(30, None)))
    with reopen(tmp_path) as again:
        assert ranges(again) == [(50, 100), (100, 110)]
        assert again.skip_damaged(TOPIC, 0, 50, 100) is None
        assert again.skip_damaged(TOPIC, 0, 100, 110) is not None
        assert offsets(again) == list(range(50))
        assert again.append(TOPIC, 0, [b"new"]).start == 110
        assert offsets(again) == [*range(50), 110]
        assert errors(again) == []


def test_several_ranges_of_a_segment_go_one_by_one(tmp_path: Path) -> None:
    store = two_segments(tmp_path)
    damage(tmp_path, store, 0, (1, HEADER), (3, HEADER))
    store.skip_damaged(TOPIC, 0, 10, 20)
    assert offsets(store, end=30) == [*range(10), *range(20, 30)]
    with pytest.raises(DamagedLogError, match="offset 30"):
        offsets(store)
    store.skip_damaged(TOPIC, 0, 30, 40)
    assert offsets(store) == [n for n in ALL if n not in {*range(10, 20), *range(30, 40)}]
    assert len(names(tmp_path, ".broken")) == 2


def test_maintenance_works_on_what_is_left(tmp_path: Path) -> None:
    store = two_segments(tmp_path, merge_below_bytes=1 << 20)
    damage(tmp_path, store, 0, (2, BODY))
    store.skip_damaged(TOPIC, 0, 20, 30)
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"x"])
    left = [n for n in range(101) if not 20 <= n < 30]
    store.recompress(TOPIC, compression="zstd")
    assert offsets(store) == left
    store.merge(TOPIC)
    assert offsets(store) == left
    store.delete_records(TOPIC, {0: 25})
    assert offsets(store) == [n for n in left if n >= 25]
    store.delete_records(TOPIC, {0: 40})
    assert store.skipped(TOPIC, 0) == []
    assert errors(store) == []


def test_offsets_that_are_given_again_are_not_skipped(tmp_path: Path) -> None:
    """Without syncs a power cut may take the empty frame and all after it."""
    store = two_segments(tmp_path, fsync="none")
    damage(tmp_path, store, 50, (3, BODY))
    store.skip_damaged(TOPIC, 0, 80, 90)
    store.close()
    overwrite(segment(tmp_path, 50), lambda data: data.__delitem__(slice(100, None)))
    again = after_reboot(tmp_path)
    again.append(TOPIC, 0, [b"new"])
    assert again.skipped(TOPIC, 0) == []


class _Cuts:
    """Cuts the power before every call of a skip, in several ways, and checks what is left."""

    def __init__(self, vfs: MemoryVfs, start: int, end: int) -> None:
        self.vfs, self.range = vfs, (start, end)
        self.rng = Random(7)
        self.seen = {"damaged": 0, "skipped": 0}

    def before(self, kind: str, path: str) -> None:
        self.vfs.hook = None
        for choose in (kept, lost, *[self._drawn] * 12):
            self._check(self.vfs.power_cut(choose, self.rng.randbytes(16)), f"{kind} {path}")
        self._check(self.vfs.kill(), f"kill before {kind} {path}")
        self.vfs.hook = self.before

    def _drawn(self, items: Sequence[Item]) -> Choice:
        return {item: self.rng.randrange(item.ages) for item in items}

    def _check(self, left: MemoryVfs, where: str) -> None:
        store, (start, end) = Store(left, CONFIG), self.range
        wanted = [n for n in ALL if not start <= n < end]
        state = "skipped"
        try:
            assert offsets(store) == wanted, where
        except DamagedLogError:
            state = "damaged"
            assert ranges(store) == [(start, end)], where
            store.skip_damaged(TOPIC, 0, start, end)
            assert offsets(store) == wanted, where
        self.seen[state] += 1
        # Never a hole without a warning, and never bytes that are gone.
        assert [(r.start, r.end) for r in store.skipped(TOPIC, 0)] == [(start, end)], where
        broken = [n for n in left.listdir(segments_directory(TOPIC, 0)) if n.endswith(".broken")]
        assert broken, where
        assert store.append(TOPIC, 0, [b"new"]).start == 100, where


@pytest.mark.parametrize(
    ("base", "byte"),
    [
        pytest.param(0, HEADER, id="sealed-header"),
        pytest.param(50, BODY, id="active-body"),
        pytest.param(50, HEADER, id="active-header", marks=pytest.mark.slow),
        pytest.param(0, BODY, id="sealed-body", marks=pytest.mark.slow),
    ],
)
def test_a_power_cut_at_any_call_leaves_the_damage_or_the_skip(base: int, byte: int) -> None:
    vfs = new_store({TOPIC: 1})
    store = Store(vfs, CONFIG)
    for number in range(10):
        if number == 5:
            store.roll(TOPIC, 0)
        store.append(TOPIC, 0, [bytes([number]) * 200] * 10)
    store.close()
    vfs = vfs.power_cut(kept, vfs.boot)
    path = f"{segments_directory(TOPIC, 0)}/{base:020}.log"
    length = 10 * (vfs.stat(path) or pytest.fail(path)).size // 50
    _change(vfs, path, 2 * length + byte)
    (found,) = Store(vfs, CONFIG).damage(TOPIC, 0)
    cuts = _Cuts(vfs, found.start, found.end)
    vfs.hook = cuts.before
    Store(vfs, CONFIG).skip_damaged(TOPIC, 0, found.start, found.end)
    vfs.hook = None
    damaged = cuts.seen["damaged"]
    cuts.before("after", "all")
    assert cuts.seen["damaged"] == damaged  # a skip that returned is durable
    assert (found.start, found.end) == (base + 20, base + 30)
    assert damaged > 50
    assert cuts.seen["skipped"] > 10


def _change(vfs: MemoryVfs, path: str, position: int) -> None:
    fd = vfs.open(path, "read")
    vfs.make_writable(fd)
    (byte,) = vfs.pread(fd, 1, position)
    vfs.pwritev(fd, [bytes([byte ^ 1])], position)
    vfs.fsync(fd)
    vfs.make_read_only(fd)
    vfs.close(fd)
