"""The high watermarks of a topic: the file, and what happens when it is lost."""

from __future__ import annotations

import errno
import shutil
import struct
from pathlib import Path
from uuid import UUID

import pytest

from storage_core import Store
from storage_core.errors import RecoveryNeededError, StorageError
from storage_core.io.checksum import crc32c
from storage_core.metadata.high_watermark import lower, make_durable, newest, publish, read, rebuild
from storage_core.metadata.slots import Watermark, pack, pack_slot, position, unpack
from tests.crash.breakers.torn_reads import torn_reads
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.stores import (
    TOPIC,
    columns_of,
    errors,
    make_store,
    on,
    reopen,
    values,
)

OTHER_UUID = UUID("0123456789abcdef0123456789abcdef").bytes
EARLIER_HEAD = b"CRSW\x01\0\0\0"
"""Magic and version of a file of an earlier release."""


def test_watermark_of_another_topic_is_not_believed(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    uuid = store.topic(TOPIC).uuid.bytes
    vfs = faulty(tmp_path)
    assert read(vfs, TOPIC, uuid) == Watermark(uuid, (0,))
    assert read(vfs, TOPIC, OTHER_UUID) is None


def test_publish_keeps_the_ends_of_other_partitions(tmp_path: Path) -> None:
    uuid = make_store(tmp_path, partitions=3).topic(TOPIC).uuid.bytes
    vfs = faulty(tmp_path)
    assert publish(vfs, TOPIC, uuid, {1: 5}, 1000)
    assert publish(vfs, TOPIC, uuid, {2: 9}, 1000)
    assert read(vfs, TOPIC, uuid) == Watermark(uuid, (0, 5, 9))


def test_publish_without_a_sound_file_says_so_and_writes_nothing(tmp_path: Path) -> None:
    uuid = make_store(tmp_path).topic(TOPIC).uuid.bytes
    file = tmp_path / "topics/t/watermark"
    file.write_bytes(b"torn")
    assert not publish(faulty(tmp_path), TOPIC, uuid, {0: 5}, 1000)
    assert file.read_bytes() == b"torn"
    rebuild(faulty(tmp_path), TOPIC, uuid, {0: 5}, 1000)
    assert read(faulty(tmp_path), TOPIC, uuid) == Watermark(uuid, (5,))


def test_unchanged_ends_write_nothing(tmp_path: Path) -> None:
    uuid = make_store(tmp_path).topic(TOPIC).uuid.bytes
    vfs = faulty(tmp_path)
    assert publish(vfs, TOPIC, uuid, {0: 0}, 1000)
    assert vfs.changes == 0


def two_partitions(path: Path) -> None:
    with make_store(path, partitions=2) as store:
        store.append(TOPIC, 0, [b"a", b"b"])
        store.append(TOPIC, 1, [b"c"])


@pytest.mark.parametrize("lost", ["missing", "torn", "empty", "zeros", "of another topic"])
def test_readers_fall_back_to_the_checkpoint(tmp_path: Path, lost: str) -> None:
    two_partitions(tmp_path)
    lose(tmp_path / "topics/t/watermark", lost)
    store = reopen(tmp_path)
    assert store.visible_ends(TOPIC) == (2, 1)
    assert values(store) == [b"a", b"b"]


def torn(data: bytes) -> bytes:
    """Both slots, or a metadata file, without their ends."""
    return data.replace(data[24:40], b"x" * 16) if data.startswith(b"CRSW") else data[:-5]


def lose(file: Path, how: str) -> None:
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(
            {
                "torn": torn(data),
                "empty": b"",
                "zeros": bytes(len(data)),
                "of another topic": pack(Watermark(OTHER_UUID, (7, 0, 1 << 40)), 3),
            }[how]
        )


@pytest.mark.parametrize("lost", ["missing", "torn"])
def test_readers_without_watermark_and_checkpoint_ask_for_recovery(
    tmp_path: Path, lost: str
) -> None:
    two_partitions(tmp_path)
    lose(tmp_path / "topics/t/watermark", lost)
    lose(tmp_path / "meta/checkpoint.json", lost)
    with pytest.raises(RecoveryNeededError) as caught:
        reopen(tmp_path).offsets(TOPIC, 0)
    assert (caught.value.topic, caught.value.path) == (TOPIC, "topics/t/watermark")


def test_checkpoint_of_another_topic_of_the_same_name_is_not_believed(tmp_path: Path) -> None:
    two_partitions(tmp_path)
    saved = (tmp_path / "meta/checkpoint.json").read_bytes()
    with reopen(tmp_path) as store:
        store.delete_topic(TOPIC)
        store.create_topic(TOPIC, 2)
    (tmp_path / "meta/checkpoint.json").write_bytes(saved)
    (tmp_path / "topics/t/watermark").unlink()
    with pytest.raises(RecoveryNeededError):
        reopen(tmp_path).visible_ends(TOPIC)


@pytest.mark.parametrize("warm", [True, False], ids=["same store", "new store"])
@pytest.mark.parametrize("lost", ["missing", "torn"])
def test_next_append_recovers_the_whole_topic_and_writes_its_records_once(
    tmp_path: Path, lost: str, warm: bool
) -> None:
    two_partitions(tmp_path)
    store = reopen(tmp_path)
    if warm:
        store.append(TOPIC, 0, [b"d"])
    else:
        store.close()
        store = reopen(tmp_path)
    before = store.visible_ends(TOPIC)
    lose(tmp_path / "topics/t/watermark", lost)
    (tmp_path / "meta/checkpoint.json").unlink()
    written = store.append(TOPIC, 0, [b"last"])
    assert (written.start, written.end) == (before[0], before[0] + 1)
    assert values(store, 0) == [b"a", b"b", *([b"d"] if warm else []), b"last"]
    assert values(store, 1) == [b"c"]
    assert errors(store) == []


def test_roll_recovers_a_lost_watermark_and_says_that_it_rolled(tmp_path: Path) -> None:
    two_partitions(tmp_path)
    store = reopen(tmp_path)
    store.append(TOPIC, 0, [b"d"])
    (tmp_path / "topics/t/watermark").unlink()
    assert store.roll(TOPIC, 0)
    assert store.visible_ends(TOPIC) == (3, 1)
    assert values(store) == [b"a", b"b", b"d"]


def test_close_publishes_what_waited_even_without_a_watermark(tmp_path: Path) -> None:
    store = make_store(tmp_path, fsync="interval", fsync_interval_ms=3_600_000)
    store.append(TOPIC, 0, [b"a"])
    store.append(TOPIC, 0, [b"b"])
    (tmp_path / "topics/t/watermark").unlink()
    store.close()
    assert values(reopen(tmp_path)) == [b"a", b"b"]


def test_repair_rewrites_a_lost_high_watermark(tmp_path: Path) -> None:
    two_partitions(tmp_path)
    (tmp_path / "topics/t/watermark").unlink()
    store = reopen(tmp_path)
    store.repair()
    assert store.visible_ends(TOPIC) == (2, 1)
    assert errors(store) == []


def test_older_watermark_after_a_power_cut_never_hides_records_from_the_next_append(
    tmp_path: Path,
) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a"])
        old = (tmp_path / "topics/t/watermark").read_bytes()
        store.append(TOPIC, 0, [b"b"])
    (tmp_path / "topics/t/watermark").write_bytes(old)
    vfs = faulty(tmp_path)
    vfs.boot = b"another boot id."
    store = on(vfs)
    assert values(store) == [b"a"]
    assert store.append(TOPIC, 0, [b"c"]).start == 2
    assert values(store) == [b"a", b"b", b"c"]


def test_copy_of_a_store_keeps_its_ends(tmp_path: Path) -> None:
    two_partitions(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    store: Store = reopen(tmp_path / "two")
    assert store.visible_ends(TOPIC) == (2, 1)


def tear(file: Path, *, newest: bool) -> None:
    """One slot as a crash in the middle of it leaves it."""
    data = bytearray(file.read_bytes())
    found = unpack(bytes(data))
    assert found is not None
    at = position(found.generation + (not newest), found.half)
    data[at + 41] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("checkpoint", ["sound", "missing"])
def test_a_torn_slot_hides_at_most_the_last_append_until_a_writer_recovers_the_topic(
    tmp_path: Path, newest: bool, checkpoint: str
) -> None:
    two_partitions(tmp_path)
    tear(tmp_path / "topics/t/watermark", newest=newest)
    if checkpoint == "missing":
        (tmp_path / "meta/checkpoint.json").unlink()
    store = reopen(tmp_path)
    hidden = newest and checkpoint == "missing"
    assert store.visible_ends(TOPIC) == (2, 0 if hidden else 1)
    store.append(TOPIC, 0, [b"d"])
    assert store.visible_ends(TOPIC) == (3, 1)
    found = unpack((tmp_path / "topics/t/watermark").read_bytes())
    assert found is not None
    assert found.has_both_slots
    assert errors(store) == []


@pytest.mark.parametrize("killed_at", [0, 10, 24, 40, 47, 55, 58])
def test_a_writer_killed_in_a_slot_leaves_the_newest_whole_one(
    tmp_path: Path, killed_at: int
) -> None:
    two_partitions(tmp_path)
    store, file = reopen(tmp_path), tmp_path / "topics/t/watermark"
    uid, before = store.topic(TOPIC).uuid.bytes, store.visible_ends(TOPIC)
    data = file.read_bytes()
    assert publish(faulty(tmp_path), TOPIC, uid, {0: 9, 1: 9}, 1000, both=True)
    written = file.read_bytes()
    found = unpack(data)
    assert found is not None
    at = position(found.generation + 1, found.half)
    half = bytearray(data)
    half[at : at + killed_at] = written[at : at + killed_at]
    file.write_bytes(half)
    assert store.visible_ends(TOPIC) == before
    if half != data:
        assert not publish(faulty(tmp_path), TOPIC, uid, {0: 3}, 1000), "it is taken for lost"
        assert file.read_bytes() == half
    assert store.append(TOPIC, 0, [b"c"]).start == 2
    assert store.visible_ends(TOPIC) == (3, 1)


@pytest.mark.parametrize("cut", [None, "create", "pwritev", "fsync", "rename", "fsync_dir"])
def test_the_first_append_rewrites_the_file_of_an_earlier_release(
    tmp_path: Path, cut: str | None
) -> None:
    two_partitions(tmp_path)
    file = tmp_path / "topics/t/watermark"
    uid = reopen(tmp_path).topic(TOPIC).uuid.bytes
    earlier = EARLIER_HEAD + struct.pack(">I16s2Q", 2, uid, 2, 1)
    file.write_bytes(earlier + struct.pack(">I", crc32c(earlier)))
    assert values(reopen(tmp_path)) == [b"a", b"b"]
    vfs = faulty(tmp_path)
    if cut is not None:
        kind = "open:create" if cut == "create" else cut
        vfs.fail(kind, errno.EIO, path="topics/t" if cut == "fsync_dir" else "topics/t/watermark")
        with pytest.raises(StorageError):
            on(vfs).append(TOPIC, 0, [b"c"])
        assert values(reopen(tmp_path)) in ([b"a", b"b"], [b"a", b"b", b"c"])
    store = reopen(tmp_path)
    store.append(TOPIC, 1, [b"d"])
    store.append(TOPIC, 0, [b"e"])
    assert values(store, 1) == [b"c", b"d"]
    found = unpack(file.read_bytes())
    assert found is not None
    assert (found.half, found.has_both_slots) == (4096, True)
    assert values(store)[:2] + values(store)[-1:] == [b"a", b"b", b"e"]
    assert errors(store) == []


def test_an_earlier_release_that_rewrites_the_file_loses_nothing(tmp_path: Path) -> None:
    """It takes the slots for a damaged file, recovers the topic, and renames its own into place."""
    two_partitions(tmp_path)
    file = tmp_path / "topics/t/watermark"
    store = reopen(tmp_path)
    uid = store.topic(TOPIC).uuid.bytes
    for number in range(3):
        earlier = EARLIER_HEAD + struct.pack(">I16s2Q", 2, uid, 2 + number, 1)
        temporary = tmp_path / "topics/t/watermark.tmp"
        temporary.write_bytes(earlier + struct.pack(">I", crc32c(earlier)))
        temporary.rename(file)
        assert store.visible_ends(TOPIC) == (2 + number, 1)
        assert store.append(TOPIC, 0, [b"x"]).start == 2 + number
        assert store.visible_ends(TOPIC) == (3 + number, 1)


def test_more_partitions_than_a_slot_has_room_for_replace_the_file(tmp_path: Path) -> None:
    store = make_store(tmp_path, partitions=506)
    file = tmp_path / "topics/t/watermark"
    store.append(TOPIC, 505, [b"a"])
    inode = file.stat().st_ino
    store.append(TOPIC, 505, [b"b"])
    assert (file.stat().st_ino, file.stat().st_size) == (inode, 8192), "written in place"
    store.add_partitions(TOPIC, 600)
    store.append(TOPIC, 0, [b"c"])
    assert file.stat().st_size == 8192
    store.append(TOPIC, 599, [b"d"])
    assert file.stat().st_size == 16384
    ends = store.visible_ends(TOPIC)
    assert (len(ends), ends[0], ends[505], ends[599], sum(ends)) == (600, 1, 2, 1, 4)


def test_lowered_ends_leave_no_slot_with_the_higher_ones(tmp_path: Path) -> None:
    uid = make_store(tmp_path).topic(TOPIC).uuid.bytes
    vfs = faulty(tmp_path)
    publish(vfs, TOPIC, uid, {0: 5}, 1000)
    publish(vfs, TOPIC, uid, {0: 9}, 1000)
    lower(vfs, TOPIC, uid, {0: 7}, 1000)
    for newest_torn in (True, False):
        tear(tmp_path / "topics/t/watermark", newest=newest_torn)
        found = newest(vfs, TOPIC, uid)
        assert found is not None
        assert found.watermark.ends == (7,)
        rebuild(vfs, TOPIC, uid, {0: 7}, 1000)


def while_a_slot_is_written(path: Path) -> FaultyVfs:
    """A writer of partition 1 is in the middle of a slot, until one waits for its lock."""
    file, vfs = path / "topics/t/watermark", faulty(path)
    uid = reopen(path).topic(TOPIC).uuid.bytes
    publish(vfs, TOPIC, uid, {1: 1}, 1000, both=True)
    whole = file.read_bytes()
    tear(file, newest=True)

    def finish(kind: str, lock: str) -> None:
        if (kind, lock) == ("open:write", "topics/t/lock"):
            file.write_bytes(whole)
            vfs.hook = None

    vfs.hook = finish
    return vfs


def test_ends_are_lowered_also_while_another_writer_is_in_the_middle_of_a_slot(
    tmp_path: Path,
) -> None:
    two_partitions(tmp_path)
    vfs = while_a_slot_is_written(tmp_path)
    uid = reopen(tmp_path).topic(TOPIC).uuid.bytes
    lower(vfs, TOPIC, uid, {0: 1}, 1000)
    vfs.hook = None
    found = newest(vfs, TOPIC, uid)
    assert found is not None
    assert (found.watermark.ends, found.has_both_slots) == ((1, 1), True)


def test_a_slot_that_is_being_written_is_not_taken_for_a_lost_file(tmp_path: Path) -> None:
    two_partitions(tmp_path)
    vfs = while_a_slot_is_written(tmp_path)
    vfs.boot = b"another boot id."
    store = on(vfs)
    assert store.append(TOPIC, 0, [b"d"]).start == 2
    assert not [call for call in vfs.calls if call.path == "topics/t/1/lock"], "it recovered all"
    assert values(store) == [b"a", b"b", b"d"]


def test_a_check_beside_a_writer_in_the_middle_of_a_slot_finds_nothing(tmp_path: Path) -> None:
    two_partitions(tmp_path)
    vfs, file = faulty(tmp_path), tmp_path / "topics/t/watermark"
    whole = file.read_bytes()
    tear(file, newest=True)
    looks = 0

    def finish(kind: str, path: str) -> None:
        nonlocal looks
        looks += (kind, path) == ("open:read", "topics/t/watermark")
        if looks == 2:
            file.write_bytes(whole)

    vfs.hook = finish
    assert errors(on(vfs)) == []


def test_a_commit_of_several_partitions_is_in_both_slots(tmp_path: Path) -> None:
    store = make_store(tmp_path, partitions=2)
    store.append(TOPIC, 0, [b"before"])
    stage = store.stage("job")
    for partition in range(2):
        stage.write(TOPIC, partition, columns_of([b"a"]))
    store.commit("job", stage.finish())
    file = tmp_path / "topics/t/watermark"
    whole = file.read_bytes()
    for newest_torn in (True, False):
        tear(file, newest=newest_torn)
        found = unpack(file.read_bytes())
        assert found is not None
        assert found.watermark.ends == (2, 1)
        file.write_bytes(whole)


def test_a_failed_sync_puts_the_same_values_into_a_new_file(tmp_path: Path) -> None:
    uid = make_store(tmp_path, partitions=2).topic(TOPIC).uuid.bytes
    vfs = faulty(tmp_path)
    publish(vfs, TOPIC, uid, {0: 5, 1: 3}, 1000)
    inode = (tmp_path / "topics/t/watermark").stat().st_ino
    vfs.fail("fsync", errno.EIO, path="watermark", drop_unsynced=True)
    with pytest.raises(OSError, match="Input/output"):
        make_durable(vfs, TOPIC, uid, 1000)
    assert read(vfs, TOPIC, uid) == Watermark(uid, (5, 3))
    assert (tmp_path / "topics/t/watermark").stat().st_ino != inode


@pytest.mark.slow
def test_readers_beside_writers_at_the_smallest_steps() -> None:
    assert torn_reads(rounds=24, reads=40) == 960


@pytest.mark.long
def test_readers_beside_writers_at_the_smallest_steps_many_times() -> None:
    assert sum(torn_reads(seed) for seed in range(40)) == 40 * 3600


def test_a_generation_without_a_next_one_is_not_believed(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    store.close()
    watermark = Watermark(store.topic(TOPIC).uuid.bytes, (1,))
    slots = [pack_slot(watermark, 2**64 - 2), pack_slot(watermark, 2**64 - 1)]
    assert unpack(b"".join(slot.ljust(4096, b"\0") for slot in slots)) is None
    file = tmp_path / "topics/t/watermark"
    file.write_bytes(b"".join(slot.ljust(4096, b"\0") for slot in slots))
    again = reopen(tmp_path)
    assert again.append(TOPIC, 0, [b"b"]).start == 1
    assert values(reopen(tmp_path)) == [b"a", b"b"]
    found = unpack(file.read_bytes())
    assert found is not None
    assert found.generation < 100
