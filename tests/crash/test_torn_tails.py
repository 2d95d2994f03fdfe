"""Tails torn, zeroed, filled with garbage or full of holes; and damage that is no torn tail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import DamagedLogError
from storage_core.format.frame import unpack_header
from tests.support.faulty_vfs import FaultyVfs
from tests.support.stores import (
    TOPIC,
    after_reboot,
    errors,
    make_store,
    names,
    overwrite,
    reopen,
    segment,
    segments,
    tree,
    values,
)


class Crashed:
    """A store whose last append did not get as far as being published."""

    def __init__(self, path: Path, acked: list[bytes], unacked: list[bytes | None]) -> None:
        self.path, self.acked, self.unacked = path, acked, unacked
        with make_store(path, frame_records=1, index_interval_bytes=0) as store:
            for value in acked:
                store.append(TOPIC, 0, [value])
        self._published = (path / "topics/t/watermark").read_bytes()
        self._checkpoint = (path / "meta/checkpoint.json").read_bytes()
        self.sound = segment(path).stat().st_size if acked else 0
        with reopen(path) as store:
            store.append(TOPIC, 0, unacked)
        self.log = segment(path).read_bytes()

    def frames(self) -> list[int]:
        """Where frames begin, and the end of the last."""
        found = [0]
        while found[-1] < len(self.log):
            found.append(found[-1] + unpack_header(self.log[found[-1] :]).length)
        return found

    def leave(self, log: bytes) -> Store:
        """Put the store into the state before publication, with these bytes in the log."""
        (self.path / "topics/t/watermark").write_bytes(self._published)
        (self.path / "meta/checkpoint.json").write_bytes(self._checkpoint)
        for file in segments(self.path).iterdir():
            if file.suffix == ".broken":
                file.unlink()
        segment(self.path).write_bytes(log)
        return after_reboot(self.path)

    def check(self, store: Store, log: bytes, sound: int) -> None:
        """Recover, and compare with what must be left."""
        assert values(store) == self.acked
        kept = [start for start in self.frames() if start <= sound]
        store.append(TOPIC, 0, [b"next"])
        expected = [*self.acked, *self.unacked][: len(kept) - 1]
        assert values(store) == [*expected, b"next"]
        assert segment(self.path).read_bytes()[:sound] == self.log[:sound]
        if len(log) > sound:
            (broken,) = names(self.path, ".broken")
            assert broken == f"{0:020d}-{sound}.broken"
            assert (segments(self.path) / broken).read_bytes() == log[sound:]
        else:
            assert names(self.path, ".broken") == []
        if len(log) % 16 == 0:
            assert errors(store) == []


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    return Crashed(tmp_path, [b"a", b"b"], [None, b"d"])


def whole_frames(crashed: Crashed, size: int) -> int:
    """End of the last frame that lies wholly in the first ``size`` bytes."""
    return max(start for start in crashed.frames() if start <= size)


@pytest.mark.row(5)
def test_tail_torn_at_every_byte_recovers_to_the_last_whole_frame(crashed: Crashed) -> None:
    for size in range(crashed.sound, len(crashed.log) + 1):
        log = crashed.log[:size]
        crashed.check(crashed.leave(log), log, whole_frames(crashed, size))


def test_first_frame_of_a_log_torn_at_every_byte_leaves_an_empty_log(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, [], [b"first"])
    for size in range(len(crashed.log) + 1):
        log = crashed.log[:size]
        crashed.check(crashed.leave(log), log, whole_frames(crashed, size))


@pytest.mark.row(5)
@pytest.mark.parametrize("fill", ["zeros", "ones", "random"])
def test_tail_filled_with_anything_is_cut(crashed: Crashed, fill: str) -> None:
    for size in range(crashed.sound, len(crashed.log), 7):
        rest = len(crashed.log) - size + 64
        filling = {"zeros": bytes(rest), "ones": b"\xff" * rest, "random": os.urandom(rest)}[fill]
        log = crashed.log[:size] + filling
        crashed.check(crashed.leave(log), log, whole_frames(crashed, size))


def holes(crashed: Crashed) -> Iterator[bytes]:
    """The first frame that was not acknowledged is a hole, the one after it is whole."""
    start, end = crashed.frames()[2:4]
    yield crashed.log[:start] + bytes(end - start) + crashed.log[end:]
    yield crashed.log[: start + 64] + bytes(end - start - 64) + crashed.log[end:]
    yield crashed.log[: start + 68] + b"\xff" + crashed.log[start + 69 :]


def test_hole_before_a_whole_frame_of_the_same_append_is_cut(crashed: Crashed) -> None:
    """Sectors reach the disk in any order; nothing of the append was acknowledged."""
    for log in holes(crashed):
        crashed.check(crashed.leave(log), log, crashed.sound)


def test_whole_tail_that_was_never_published_is_kept(crashed: Crashed) -> None:
    crashed.check(crashed.leave(crashed.log), crashed.log, len(crashed.log))


def test_tail_longer_than_a_search_window_is_searched_to_its_end(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, [b"a"], [b"x" * 3_000_000, b"y"])
    start = crashed.frames()[1]
    log = crashed.log[:start] + bytes(8) + crashed.log[start + 8 :]
    crashed.check(crashed.leave(log), log, crashed.sound)


def damaged(path: Path) -> None:
    """Three appends to each of two partitions; a bit of the second record of 0 is flipped."""
    with make_store(path, 2) as store:
        for number in range(3):
            for partition in (0, 1):
                store.append(TOPIC, partition, [b"%d" % number])
    size = segment(path).stat().st_size // 3
    overwrite(segment(path), lambda data: data.__setitem__(size + 70, data[size + 70] ^ 4))


def no_checkpoint(path: Path) -> None:
    (path / "meta/checkpoint.json").unlink()


def nothing_published(path: Path) -> None:
    """Only the frames themselves still know what was durable before them."""
    no_checkpoint(path)
    (path / "topics/t/watermark").unlink()


@pytest.mark.row(6)
@pytest.mark.parametrize("lose", [no_checkpoint, nothing_published])
def test_bad_frame_below_the_recovery_point_closes_the_partition_and_deletes_nothing(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    damaged(tmp_path)
    lose(tmp_path)
    before = tree(segments(tmp_path))
    size = segment(tmp_path).stat().st_size // 3
    for _ in range(2):
        store = after_reboot(tmp_path)
        with pytest.raises(DamagedLogError) as caught:
            store.append(TOPIC, 0, [b"x"])
        error = caught.value
        assert (error.topic, error.partition, error.offset) == (TOPIC, 0, 1)
        assert error.path == "topics/t/0/segments/00000000000000000000.log"
        assert error.position == size
        assert "t-0" in str(error)
    assert tree(segments(tmp_path)) == before
    if lose is no_checkpoint:
        assert store.append(TOPIC, 1, [b"works"]).start == 3
        assert values(store, 1) == [b"0", b"1", b"2", b"works"]


@pytest.mark.row(6)
def test_last_acknowledged_frame_that_rots_is_damage_not_a_torn_tail(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
        store.append(TOPIC, 0, [b"b"])
    size = segment(tmp_path).stat().st_size
    for position in (size // 2, size // 2 + 70, size - 1):
        overwrite(segment(tmp_path), lambda data, at=position: data.__setitem__(at, data[at] ^ 1))  # type: ignore[misc]
        no_checkpoint(tmp_path) if (tmp_path / "meta/checkpoint.json").exists() else None
        with pytest.raises(DamagedLogError, match="offsets 1 to 1 were durable"):
            after_reboot(tmp_path).append(TOPIC, 0, [b"x"])
        overwrite(segment(tmp_path), lambda data, at=position: data.__setitem__(at, data[at] ^ 1))  # type: ignore[misc]
    assert after_reboot(tmp_path).append(TOPIC, 0, [b"x"]).start == 2


def test_damage_repaired_from_a_copy_opens_the_partition_again(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
        store.append(TOPIC, 0, [b"b"])
    copy = segment(tmp_path).read_bytes()
    overwrite(segment(tmp_path), lambda data: data.__setitem__(70, data[70] ^ 1))
    no_checkpoint(tmp_path)
    with pytest.raises(DamagedLogError):
        after_reboot(tmp_path).append(TOPIC, 0, [b"x"])
    segment(tmp_path).write_bytes(copy)
    store = after_reboot(tmp_path)
    store.append(TOPIC, 0, [b"c"])
    assert values(store) == [b"a", b"b", b"c"]


def test_without_syncs_any_tail_is_cut_even_below_the_high_watermark(tmp_path: Path) -> None:
    with make_store(tmp_path, fsync="none") as store:
        for number in range(3):
            store.append(TOPIC, 0, [b"%d" % number])
    os.truncate(segment(tmp_path), segment(tmp_path).stat().st_size - 5)
    store = after_reboot(tmp_path)
    assert store.append(TOPIC, 0, [b"x"]).start == 2
    assert values(store) == [b"0", b"1", b"x"]
    assert errors(store) == []


def test_two_crashes_at_the_same_place_keep_the_bytes_of_both(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
    for tail in (b"first tail", b"second tail"):
        with segment(tmp_path).open("ab") as file:
            file.write(tail)
        after_reboot(tmp_path).append(TOPIC, 0, [])
    saved = {(segments(tmp_path) / name).read_bytes() for name in names(tmp_path, ".broken")}
    assert saved == {b"first tail", b"second tail"}


@pytest.mark.row(7)
def test_tail_is_cut_and_the_cut_is_durable_before_the_next_append(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, [b"a"], [b"b"])
    store = crashed.leave(crashed.log[:-5])
    vfs = store.vfs
    assert isinstance(vfs, FaultyVfs)
    store.append(TOPIC, 0, [b"next"])
    log = [call.kind for call in vfs.calls if call.path == str(segment(Path()))]
    changes = [kind for kind in log if kind in ("truncate", "fsync", "pwritev")]
    cut = changes.index("truncate")
    assert changes[cut : cut + 3] == ["truncate", "fsync", "pwritev"]
    assert values(store) == [b"a", b"next"]
