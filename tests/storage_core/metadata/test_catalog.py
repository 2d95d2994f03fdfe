"""Topics: whole or not at all, under names that are safe everywhere."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from storage_core import Store
from storage_core.errors import (
    ConfigError,
    DamagedMetadataError,
    DiskFullError,
    InvalidNameError,
    PartitionNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
    UnsafeFileError,
)
from storage_core.format.file_names import (
    MAX_OFFSET,
    parse_segment_file,
    parse_segment_files,
    segment_file,
)
from storage_core.io import json_files as metafile
from storage_core.metadata import topic_file as topicfile
from storage_core.metadata.topic_file import TopicFile
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import TOPIC, errors, flips, make_store, on, refused, reopen, values

TOPIC_JSON = b"""{
  "crc32c": "46eb2fb8",
  "created_at": "2023-11-14T22:13:20.000Z",
  "format": 1,
  "partitions": 3,
  "settings": {
    "compression": "zstd",
    "retention_ms": 86400000
  },
  "store_uuid": "01234567-89ab-cdef-0123-456789abcdef",
  "uuid": "fedcba98-7654-3210-fedc-ba9876543210"
}
"""


def test_topic_file_has_these_bytes() -> None:
    topic = TopicFile(
        uuid=UUID("fedcba9876543210fedcba9876543210"),
        store_uuid=UUID("0123456789abcdef0123456789abcdef"),
        partitions=3,
        created_at="2023-11-14T22:13:20.000Z",
        settings={"compression": "zstd", "retention_ms": 86_400_000},
    )
    assert metafile.dump(topicfile.dump(topic)) == TOPIC_JSON


def test_every_bit_flip_of_a_topic_file_is_detected(tmp_path: Path) -> None:
    make_store(tmp_path).append(TOPIC, 0, [b"a"])
    file = tmp_path / "topics/t/topic.json"
    for bit, flipped in flips(file.read_bytes()):
        file.write_bytes(flipped)
        assert refused(DamagedMetadataError, topicfile.read, faulty(tmp_path), TOPIC), bit
    assert [problem.code for problem in errors(reopen(tmp_path))] == ["METADATA_DAMAGED"]


def test_topic_with_a_damaged_file_does_not_hurt_the_others(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.create_topic("sound")
    (tmp_path / "topics/t/topic.json").write_bytes(b"{}")
    store.append("sound", 0, [b"a"])
    assert values(store, topic="sound") == [b"a"]
    calls: list[Callable[[], object]] = [
        lambda: store.append(TOPIC, 0, [b"a"]),
        lambda: store.offsets(TOPIC, 0),
    ]
    for call in calls:
        with pytest.raises(DamagedMetadataError) as caught:
            call()
        assert caught.value.path == "topics/t/topic.json"


@pytest.mark.parametrize(
    "changes",
    [{"partitions": 0}, {"uuid": "x"}, {"format": 2}, {"settings": {"zzz": 1}}, {"settings": []}],
)
def test_topic_file_with_impossible_contents_is_damaged(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    store = make_store(tmp_path)
    fields = {**topicfile.dump(store.topic(TOPIC)), **changes}
    metafile.replace(faulty(tmp_path), topicfile.path_of(TOPIC), fields)
    with pytest.raises(DamagedMetadataError):
        reopen(tmp_path).topic(TOPIC)


def test_created_topic_is_seen_by_another_store_at_once(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    other = reopen(tmp_path)
    store.create_topic("u", 3, compression="zstd")
    assert other.topics() == [TOPIC, "u"]
    found = other.topic("u")
    assert (found.partitions, dict(found.settings)) == (3, {"compression": "zstd"})
    assert found.config(other.config).compression == "zstd"


def test_creating_twice_fails_unless_that_is_fine(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first = store.topic(TOPIC)
    with pytest.raises(TopicExistsError) as caught:
        store.create_topic(TOPIC)
    assert caught.value.topic == TOPIC
    assert store.create_topic(TOPIC, 5, exist_ok=True) == first
    assert sorted(os.listdir(tmp_path / "topics")) == [TOPIC]


@pytest.mark.row(26)
@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", "a b", "ä", "~x", "x" * 250, "a\n", "%2e%2e"],
)
def test_hostile_names_are_refused_everywhere(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path)
    for call in (
        lambda: store.create_topic(name),
        lambda: store.append(name, 0, [b"a"]),
        lambda: store.read(name, 0),
        lambda: store.delete_topic(name),
        lambda: store.offsets(name, 0),
    ):
        with pytest.raises(InvalidNameError):
            call()
    assert sorted(os.listdir(tmp_path / "topics")) == [TOPIC]


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_names_of_the_whitelist_work(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path)
    store.create_topic(name)
    store.append(name, 0, [b"a"])
    assert values(store, topic=name) == [b"a"]


@pytest.mark.row(26)
def test_name_that_differs_only_in_case_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    with pytest.raises(InvalidNameError, match="only in case"):
        store.create_topic("T")


@pytest.mark.parametrize("partitions", [0, -1, 1 << 30, "1", 1.0])
def test_impossible_numbers_of_partitions_are_refused(tmp_path: Path, partitions: Any) -> None:
    with pytest.raises(ConfigError):
        make_store(tmp_path).create_topic("u", partitions)


def test_setting_that_no_topic_has_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    with pytest.raises(ConfigError, match="lock_timeout_ms"):
        store.create_topic("u", lock_timeout_ms=5)
    with pytest.raises(ConfigError, match="fsync"):
        store.create_topic("u", fsync="maybe")
    assert store.topics() == [TOPIC]


def test_unknown_topics_and_partitions_are_named(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    with pytest.raises(TopicNotFoundError, match="Topics found: t") as caught:
        store.append("nope", 0, [b"a"])
    assert caught.value.topic == "nope"
    for partition in (1, -1, "0", 0.0):
        with pytest.raises(PartitionNotFoundError, match="0 to 0"):
            store.read(TOPIC, partition)  # type: ignore[arg-type]


def test_topic_grows_but_never_shrinks(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a"])
    other = reopen(tmp_path)
    assert store.add_partitions(TOPIC, 3).partitions == 3
    assert other.offsets(TOPIC, 2).end == 0
    other.append(TOPIC, 2, [b"c"])
    assert (values(store, 0), values(store, 2)) == ([b"a"], [b"c"])
    with pytest.raises(ConfigError, match="cannot shrink"):
        store.add_partitions(TOPIC, 2)
    assert errors(store) == []


def test_altered_settings_hold_from_the_next_append_on(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"a" * 1000])
    store.alter_topic(TOPIC, compression="zstd", retention_ms=5)
    store.append(TOPIC, 0, [b"b" * 1000])
    assert values(store) == [b"a" * 1000, b"b" * 1000]
    assert dict(store.alter_topic(TOPIC, retention_ms=None).settings) == {"compression": "zstd"}
    with pytest.raises(ConfigError):
        store.alter_topic(TOPIC, partitions=3)


def test_deleted_topic_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(TOPIC, 0, [b"old"])
    other = reopen(tmp_path)
    store.delete_topic(TOPIC)
    assert store.topics() == []
    for each in (store, other):
        with pytest.raises(TopicNotFoundError):
            each.append(TOPIC, 0, [b"a"])
    store.create_topic(TOPIC)
    assert other.append(TOPIC, 0, [b"new"]).start == 0
    assert (values(store), values(other)) == ([b"new"], [b"new"])
    assert errors(store) == []
    with pytest.raises(TopicNotFoundError):
        store.delete_topic("nope")


def test_damaged_topic_can_be_deleted(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"a" * 100])
    (tmp_path / "topics/t/0/segments/00000000000000000000.log").write_bytes(b"rubbish" * 50)
    vfs = faulty(tmp_path)
    vfs.boot = os.urandom(16)
    on(vfs).delete_topic(TOPIC)
    assert reopen(tmp_path).topics() == []


def test_creation_that_crashes_leaves_no_topic_or_all_of_it(tmp_path: Path) -> None:
    make_store(tmp_path / "0").close()
    counting = faulty(tmp_path / "0")
    on(counting).create_topic("u", 2)
    for count in range(counting.changes):
        path = tmp_path / f"crash-{count}"
        make_store(path).close()
        vfs = faulty(path)
        vfs.crash_after = count
        with pytest.raises(CrashError):
            on(vfs).create_topic("u", 2)
        store = reopen(path)
        if "u" in store.topics():
            store.append("u", 1, [b"a"])
        else:
            store.create_topic("u", 2)
        assert errors(store) == []
        shutil.rmtree(path)


def test_deletion_that_crashes_leaves_all_of_the_topic_or_none(tmp_path: Path) -> None:
    counting = faulty(make_and_fill(tmp_path / "0"))
    on(counting).delete_topic(TOPIC)
    for count in range(counting.changes):
        path = make_and_fill(tmp_path / f"crash-{count}")
        vfs = faulty(path)
        vfs.crash_after = count
        with pytest.raises(CrashError):
            on(vfs).delete_topic(TOPIC)
        store = reopen(path)
        if TOPIC in store.topics():
            assert values(store) == [b"a"]
        store.create_topic("sweeps")
        store.append("sweeps", 0, [b"b"])
        left = [name for name in os.listdir(path / "topics") if name.startswith("~")]
        assert left == []
        assert errors(store) == []
        shutil.rmtree(path)


def make_and_fill(path: Path) -> Path:
    with make_store(path) as store:
        store.append(TOPIC, 0, [b"a"])
    return path


def test_full_disk_makes_no_topic_and_leaves_no_rubbish(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    vfs.fail("pwritev", errno.ENOSPC, path="topic.json")
    store = on(vfs)
    with pytest.raises(DiskFullError):
        store.create_topic("u")
    assert os.listdir(tmp_path / "topics") == [TOPIC]
    store.create_topic("u")
    assert store.topics() == [TOPIC, "u"]


@pytest.mark.row(27)
def test_link_in_the_place_of_a_topic_is_refused(tmp_path: Path) -> None:
    make_and_fill(tmp_path / "one")
    make_and_fill(tmp_path / "two")
    (tmp_path / "one/topics/link").symlink_to(tmp_path / "two/topics/t")
    store: Store = reopen(tmp_path / "one")
    for call in (
        lambda: store.append("link", 0, [b"a"]),
        lambda: store.offsets("link", 0),
        lambda: store.delete_topic("link"),
    ):
        with pytest.raises(UnsafeFileError):
            call()
    assert [problem.code for problem in errors(store)] == ["UNSAFE_FILE"]
    assert values(store) == [b"a"]


def test_segment_names_and_their_parser_are_inverses() -> None:
    for base in (0, 7, 10**18, MAX_OFFSET):
        for suffix in (".log", ".idx", ".timeidx", ".stats", ".tomb"):
            assert parse_segment_file(segment_file(base, suffix)) == (base, suffix)
    assert segment_file(7, ".log") == "00000000000000000007.log"
    for other in ("7.log", "x.log", f"{MAX_OFFSET + 1:020d}.log", "0" * 20, "0" * 20 + ".log2"):
        assert parse_segment_file(other) is None
        assert parse_segment_files([other, "0" * 19 + "7.log"]) == (
            [7],
            [],
            [],
            [],
            [],
            [other],
        )
    with pytest.raises(ValueError, match="outside"):
        segment_file(-1, ".log")
