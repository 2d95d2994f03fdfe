"""The high watermarks of a topic: the file, and what happens when it is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from storage_core import Store
from storage_core.errors import RecoveryNeededError
from storage_core.metadata.high_watermark import Watermark, pack, publish, read, rebuild, unpack
from tests.support.faulty_vfs import faulty
from tests.support.stores import TOPIC, errors, flips, make_store, on, reopen, values

UUID_BYTES = UUID("0123456789abcdef0123456789abcdef").bytes
BYTES = bytes.fromhex(
    "4352535701000000000000030123456789abcdef0123456789abcdef"
    "000000000000000700000000000000000000010000000000878b8a97"
)


def test_watermark_has_these_bytes() -> None:
    assert pack(Watermark(UUID_BYTES, (7, 0, 1 << 40))).hex() == BYTES.hex()
    assert unpack(BYTES) == Watermark(UUID_BYTES, (7, 0, 1 << 40))


@pytest.mark.parametrize("schema", [None, 3], ids=["records", "typed"])
def test_every_bit_flip_and_truncation_is_detected(schema: int | None) -> None:
    data = pack(Watermark(UUID_BYTES, (7, 0, 1 << 40), schema))
    for bit, flipped in flips(data):
        assert unpack(flipped) is None, bit
    for size in range(len(data)):
        assert unpack(data[:size]) is None


def test_partition_beyond_the_list_ends_at_zero() -> None:
    assert Watermark(UUID_BYTES, (7,)).end(0) == 7
    assert Watermark(UUID_BYTES, (7,)).end(5) == 0


def test_watermark_of_another_topic_is_not_believed(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    uuid = store.topic(TOPIC).uuid.bytes
    vfs = faulty(tmp_path)
    assert read(vfs, TOPIC, uuid) == Watermark(uuid, (0,))
    assert read(vfs, TOPIC, UUID_BYTES) is None


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


def lose(file: Path, how: str) -> None:
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(
            {
                "torn": data[:-5],
                "empty": b"",
                "zeros": bytes(len(data)),
                "of another topic": BYTES,
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
