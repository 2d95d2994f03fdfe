"""``checkpoint.json``: an accelerator that is never the truth."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest

from storage_core.io import json_files as metafile
from storage_core.metadata import checkpoint
from storage_core.metadata.checkpoint import Checkpoint
from tests.support.faulty_vfs import faulty
from tests.support.stores import TOPIC, after_reboot, errors, flips, make_store, on, reopen, values

UUID_1 = UUID("0123456789abcdef0123456789abcdef")
LINE = Checkpoint("t", 0, str(UUID_1), 250, 100, 4096, 250)
BYTES = b"""{
  "crc32c": "393fa9a2",
  "format": 1,
  "partitions": [
    {
      "active_segment_base_offset": 100,
      "active_segment_size_bytes": 4096,
      "last_flushed_offset": 250,
      "log_end_offset": 250,
      "partition": 0,
      "topic": "t",
      "topic_uuid": "01234567-89ab-cdef-0123-456789abcdef"
    }
  ]
}
"""


def test_checkpoint_has_these_bytes(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    checkpoint.create(vfs, 1000)
    checkpoint.merge(vfs, [LINE], 1000)
    assert (tmp_path / "meta/checkpoint.json").read_bytes() == BYTES
    assert checkpoint.read(vfs) == {("t", 0): LINE}


def test_first_boot_makes_an_empty_checkpoint(tmp_path: Path) -> None:
    make_store(tmp_path)
    assert (tmp_path / "meta/checkpoint.json").exists()
    assert checkpoint.read(faulty(tmp_path)) == {}


def test_merge_keeps_the_lines_of_others(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    checkpoint.create(vfs, 1000)
    other = LINE._replace(topic="u", partition=3)
    checkpoint.merge(vfs, [LINE], 1000)
    checkpoint.merge(vfs, [other], 1000)
    newer = LINE._replace(log_end_offset=300)
    checkpoint.merge(vfs, [newer], 1000)
    assert checkpoint.read(vfs) == {("t", 0): newer, ("u", 3): other}
    checkpoint.merge(vfs, [], 1000, forget_topic="u")
    assert checkpoint.read(vfs) == {("t", 0): newer}


def test_line_of_a_topic_recreated_under_the_name_is_not_found(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    checkpoint.create(vfs, 1000)
    checkpoint.merge(vfs, [LINE], 1000)
    assert checkpoint.find(vfs, "t", 0, UUID_1) == LINE
    assert checkpoint.find(vfs, "t", 0, UUID(int=1)) is None
    assert checkpoint.find(vfs, "t", 1, UUID_1) is None


@pytest.mark.row(18)
def test_every_bit_flip_makes_it_empty_not_wrong(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    checkpoint.create(vfs, 1000)
    file = tmp_path / "meta/checkpoint.json"
    for bit, flipped in flips(BYTES):
        file.write_bytes(flipped)
        assert checkpoint.read(vfs) == {}, bit


@pytest.mark.parametrize(
    "rows",
    [
        [{}],
        ["t"],
        [{**LINE._asdict(), "extra": 1}],
        [{**LINE._asdict(), "partition": "0"}],
        [{**LINE._asdict(), "topic": 1}],
        [{**LINE._asdict(), "log_end_offset": True}],
    ],
)
def test_lines_with_other_fields_make_it_empty(tmp_path: Path, rows: list[object]) -> None:
    vfs = faulty(tmp_path)
    checkpoint.create(vfs, 1000)
    metafile.replace(vfs, checkpoint.PATH, {"format": 1, "partitions": rows})
    assert checkpoint.read(vfs) == {}


@pytest.mark.row(18)
@pytest.mark.parametrize("state", ["missing", "damaged", "no meta lock"])
def test_store_without_a_checkpoint_gives_the_same_answers(tmp_path: Path, state: str) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a", b"b"])
    file = tmp_path / "meta/checkpoint.json"
    if state == "damaged":
        file.write_bytes(b"{}")
    else:
        file.unlink()
    if state == "no meta lock":
        (tmp_path / "meta/checkpoint.lock").unlink()
    with after_reboot(tmp_path) as store:
        assert values(store) == [b"a", b"b"]
        assert store.append(TOPIC, 0, [b"c"]).start == 2
    store = reopen(tmp_path)
    assert values(store) == [b"a", b"b", b"c"]
    assert errors(store) == []
    assert checkpoint.read(faulty(tmp_path))[TOPIC, 0].log_end_offset == 3


def test_roll_and_close_write_it(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    assert checkpoint.read(faulty(tmp_path)) == {}
    store.roll(TOPIC, 0)
    line = checkpoint.read(faulty(tmp_path))[TOPIC, 0]
    assert (line.log_end_offset, line.active_segment_base_offset) == (1, 1)
    store.append(TOPIC, 0, [b"b"])
    store.close()
    line = checkpoint.read(faulty(tmp_path))[TOPIC, 0]
    assert (line.log_end_offset, line.last_flushed_offset) == (2, 2)
    assert line.active_segment_size_bytes > 0


def test_it_is_written_every_interval(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    store = reopen(tmp_path, checkpoint_interval_ms=0)
    store.append(TOPIC, 0, [b"a"])
    assert checkpoint.read(faulty(tmp_path))[TOPIC, 0].log_end_offset == 1


def test_recovery_starts_after_what_the_checkpoint_says_was_synced(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        for number in range(50):
            store.append(TOPIC, 0, [b"%d" % number * 2000])

    def bytes_read(remove: bool) -> int:
        if remove:
            (tmp_path / "meta/checkpoint.json").unlink()
        vfs = faulty(tmp_path)
        vfs.boot = os.urandom(16)
        total = 0
        inner = vfs.inner.pread

        def counted(fd: int, size: int, position: int) -> bytes:
            nonlocal total
            data = inner(fd, size, position)
            total += len(data) if vfs._path(fd).endswith(".log") else 0
            return data

        vfs.inner.pread = counted  # type: ignore[method-assign]
        on(vfs).append(TOPIC, 0, [])
        return total

    with_it = bytes_read(remove=False)
    assert with_it * 10 < bytes_read(remove=True)


def test_append_succeeds_although_the_checkpoint_cannot_be_written(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    store = on(vfs, checkpoint_interval_ms=0)
    vfs.fail("open:create", errno.ENOSPC, path="checkpoint", times=100)
    assert store.append(TOPIC, 0, [b"a"]).start == 0
    assert values(store) == [b"a"]
    store.close()
    assert values(reopen(tmp_path)) == [b"a"]
