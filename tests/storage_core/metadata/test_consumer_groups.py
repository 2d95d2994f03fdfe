"""Committed offsets of consumer groups."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from storage_core.errors import (
    DamagedMetadataError,
    DiskFullError,
    InvalidNameError,
    InvalidRecordError,
    PartitionNotFoundError,
    TopicNotFoundError,
)
from storage_core.io import json_files as metafile
from storage_core.metadata import consumer_groups as groups
from tests.support.faulty_vfs import faulty
from tests.support.stores import T0, TOPIC, flips, make_store, on, refused, reopen

BYTES = b"""{
  "committed_at": "2023-11-14T22:13:20.000Z",
  "crc32c": "e578cc8d",
  "format": 1,
  "group": "g",
  "topics": {
    "t": {
      "offsets": {
        "0": 7,
        "10": 9
      },
      "uuid": "01234567-89ab-cdef-0123-456789abcdef"
    }
  }
}
"""
UUIDS = {"t": "01234567-89ab-cdef-0123-456789abcdef"}


def test_group_file_has_these_bytes(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    vfs.clock_us = T0
    groups.commit(vfs, "meta/consumer-offsets", "g", {"t": {0: 7, 10: 9}}, UUIDS, 1000)
    assert (tmp_path / "meta/consumer-offsets/g.json").read_bytes() == BYTES


def test_every_bit_flip_is_detected(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.commit_offsets("g", {TOPIC: {0: 1}})
    file = tmp_path / "meta/consumer-offsets/g.json"
    for bit, flipped in flips(file.read_bytes()):
        file.write_bytes(flipped)
        assert refused(DamagedMetadataError, store.committed_offsets, "g"), bit


def test_commit_is_read_back_by_another_store(tmp_path: Path) -> None:
    store = make_store(tmp_path, partitions=3)
    assert store.groups() == []
    assert store.committed_offsets("g") == {}
    store.commit_offsets("g", {TOPIC: {0: 5}})
    store.commit_offsets("g", {TOPIC: {2: 7}})
    store.commit_offsets("g", {TOPIC: {0: 6}})
    store.commit_offsets("other", {TOPIC: {1: 1}})
    again = reopen(tmp_path)
    assert again.groups() == ["g", "other"]
    assert again.committed_offsets("g") == {TOPIC: {0: 6, 2: 7}}
    assert again.committed_offsets("other") == {TOPIC: {1: 1}}


def test_position_of_a_recreated_topic_starts_again(tmp_path: Path) -> None:
    store = make_store(tmp_path, partitions=2)
    store.commit_offsets("g", {TOPIC: {0: 5, 1: 5}})
    store.delete_topic(TOPIC)
    store.create_topic(TOPIC, 2)
    assert store.committed_offsets("g") == {}
    store.commit_offsets("g", {TOPIC: {1: 2}})
    assert store.committed_offsets("g") == {TOPIC: {1: 2}}


@pytest.mark.parametrize("offset", [-1, 1 << 63, "5", 1.5, None, True])
def test_offsets_that_cannot_be_are_refused(tmp_path: Path, offset: Any) -> None:
    store = make_store(tmp_path)
    with pytest.raises(InvalidRecordError):
        store.commit_offsets("g", {TOPIC: {0: offset}})
    assert store.groups() == []


def test_unknown_topics_and_partitions_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    with pytest.raises(TopicNotFoundError):
        store.commit_offsets("g", {"nope": {0: 1}})
    with pytest.raises(PartitionNotFoundError):
        store.commit_offsets("g", {TOPIC: {1: 1}})


@pytest.mark.row(26)
@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "x" * 250, "a\0b", "ü"])
def test_hostile_group_names_are_refused(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path)
    with pytest.raises(InvalidNameError):
        store.commit_offsets(name, {TOPIC: {0: 1}})
    with pytest.raises(InvalidNameError):
        store.committed_offsets(name)


@pytest.mark.parametrize(
    "topics",
    [
        [],
        {"t": 5},
        {"t": {"uuid": "x"}},
        {"t": {"uuid": 1, "offsets": {}}},
        {"t": {"uuid": "x", "offsets": {"zero": 1}}},
        {"t": {"uuid": "x", "offsets": {"0": None}}},
    ],
)
def test_group_file_with_another_schema_is_damaged(tmp_path: Path, topics: object) -> None:
    store: Store = make_store(tmp_path)
    store.commit_offsets("g", {TOPIC: {0: 1}})
    metafile.replace(
        faulty(tmp_path),
        groups.path_of("meta/consumer-offsets", "g"),
        {"format": 1, "topics": topics},
    )
    with pytest.raises(DamagedMetadataError):
        store.committed_offsets("g")


def test_full_disk_leaves_the_old_commit(tmp_path: Path) -> None:
    make_store(tmp_path).commit_offsets("g", {TOPIC: {0: 1}})
    vfs = faulty(tmp_path)
    store = on(vfs)
    vfs.fail("pwritev", errno.ENOSPC, path="consumer-offsets")
    with pytest.raises(DiskFullError):
        store.commit_offsets("g", {TOPIC: {0: 2}})
    assert store.committed_offsets("g") == {TOPIC: {0: 1}}
    store.commit_offsets("g", {TOPIC: {0: 3}})
    assert store.committed_offsets("g") == {TOPIC: {0: 3}}
