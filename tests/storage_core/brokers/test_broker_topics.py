"""Topics of a broker's directory: made, grown, deleted, recreated, and registered with it."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import (
    CommitUnknownError,
    ConfigError,
    DamagedLogError,
    ForeignRecordsError,
    StorageError,
    TopicExistsError,
    TopicNotFoundError,
)
from tests.support.brokers.broker_directories import BROKER, TOPIC, read
from tests.support.faulty_vfs import faulty
from tests.support.stores import columns_of, tree


def make(root: Path, layout: str, partitions: int = 1, **settings: Any) -> Store:
    store = Store.open(root, layout=layout, create=True, config=StoreConfig(**settings))
    store.create_topic(TOPIC, partitions)
    return store


def metadata(root: Path) -> list[tuple[str, int]]:
    document = json.loads((root / "__topic_metadata.json").read_bytes())
    assert document["version"] == 1
    return [(entry["name"], entry["partitions"]) for entry in document["topics"]]


def test_topics_are_registered_with_the_broker(tmp_path: Path) -> None:
    store = make(tmp_path, "cursus-broker", partitions=2)
    store.create_topic("a")
    assert metadata(tmp_path) == [("a", 1), (TOPIC, 2)]
    store.add_partitions(TOPIC, 4)
    assert metadata(tmp_path) == [("a", 1), (TOPIC, 4)]
    assert [BROKER.file(tmp_path, 0, p).exists() for p in range(5)] == [True] * 4 + [False]
    store.delete_topic("a")
    assert metadata(tmp_path) == [(TOPIC, 4)]
    assert not (tmp_path / "a").exists()


def test_what_the_broker_says_of_its_topics_is_kept(tmp_path: Path) -> None:
    BROKER.write(tmp_path, [[b"a"]])
    entry = {"name": TOPIC, "partitions": 1, "event_sourcing": True, "policy": {"x": 1}}
    other = {"version": 1, "later": [], "topics": [entry]}
    file = tmp_path / "__topic_metadata.json"
    file.write_text(json.dumps(other))
    store = BROKER.open(tmp_path)
    store.create_topic("b")
    document = json.loads(file.read_text())
    assert document["topics"][1] == entry
    assert (document["later"], document["topics"][0]["name"]) == ([], "b")
    assert file.read_text().startswith('{\n  "version"')
    file.write_text("[]")
    with pytest.raises(StorageError, match="__topic_metadata"):
        store.create_topic("c")


def test_topics_are_created_deleted_and_created_again(tmp_path: Path) -> None:
    for layout in ("cursus", "cursus-broker", "rustlog"):
        store = make(tmp_path / layout, layout)
        store.append(TOPIC, 0, [b"a", b"b"])
        first = store.topic(TOPIC).uuid
        store.commit_offsets("g", {TOPIC: {0: 2}})
        with pytest.raises(TopicExistsError):
            store.create_topic(TOPIC)
        with pytest.raises(ConfigError):
            store.create_topic("x", compression="zstd")
        assert store.committed_offsets("g") == {TOPIC: {0: 2}}
        reader = Store.open(tmp_path / layout)
        assert read(reader).values == [b"a", b"b"]
        store.delete_topic(TOPIC)
        with pytest.raises(TopicNotFoundError):
            store.topic(TOPIC)
        store.create_topic(TOPIC)
        assert store.topic(TOPIC).uuid != first
        assert store.committed_offsets("g") == {}
        store.append(TOPIC, 0, [b"new", b"one", b"more"])
        assert read(reader).values == read(store).values == [b"new", b"one", b"more"]


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_restored_copy_is_the_same_topics_with_the_same_commits(
    tmp_path: Path, layout: str
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    store = make(original, layout, partitions=2)
    vfs = faulty(original)
    dying = Store(vfs, StoreConfig(), layout)
    for job, version in (("first", 1), ("second", 2)):
        stage = dying.stage(job)
        for partition in (0, 1):
            stage.write(TOPIC, partition, columns_of([job.encode()]))
        if version == 1:
            dying.commit(job, stage.finish(), app="app", version=version)
    vfs.fail("pwritev", errno.EIO, path="partition-1" if layout == "rustlog" else "partition_1")
    with pytest.raises(CommitUnknownError):
        dying.commit("second", stage.finish(), app="app", version=2)
    shutil.copytree(original, copy)
    with Store.open(copy) as restored:
        assert restored.topic(TOPIC).uuid == store.topic(TOPIC).uuid
        restored.repair()
        for partition in (0, 1):
            assert read(restored, partition).values == [b"first", b"second"]
        again = restored.stage("again")
        again.write(TOPIC, 0, columns_of([b"first"]))
        assert restored.commit("again", again.finish(), app="app", version=1).skipped


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
@pytest.mark.parametrize("deleted_by_us", [False, True])
@pytest.mark.parametrize("before", [[b"a"], []])
def test_an_interrupted_commit_leaves_a_topic_alone_that_the_broker_recreated(
    tmp_path: Path, layout: str, deleted_by_us: bool, before: list[bytes]
) -> None:
    root, other = tmp_path / "log", tmp_path / "other"
    store = make(root, layout)
    if before:
        store.append(TOPIC, 0, before)
    leave_interrupted_commit(root, layout)
    new = [b"new%d" % number for number in range(1000)]
    make(other, layout).append(TOPIC, 0, new)
    if deleted_by_us:
        Store.open(root, layout=layout).delete_topic(TOPIC)
    else:
        shutil.rmtree(topic_directory(root))
    topic_directory(other).rename(topic_directory(other, root))
    with Store.open(root, layout=layout) as after:
        if not before and not deleted_by_us:
            # Of an empty log nothing says that it is another one now: nothing is dropped unasked.
            with pytest.raises(ForeignRecordsError):
                after.repair()
            (pending,) = after.pending_commits()
            after.give_up_commit(pending.transaction)
        after.repair()
        assert after.append(TOPIC, 0, [b"next"]).start == 1000
        assert read(after).values == [*new, b"next"]
    assert not list((root / ".cursus-spark" / "intents").iterdir())


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_an_interrupted_commit_touches_nothing_when_only_some_partitions_are_recreated(
    tmp_path: Path, layout: str
) -> None:
    root = tmp_path / "log"
    store = make(root, layout, partitions=2)
    for partition in (0, 1):
        store.append(TOPIC, partition, [b"a"])
    leave_interrupted_commit(root, layout, partitions=2)
    log = next(
        file
        for file in sorted(topic_directory(root).rglob("*.log"), reverse=True)
        if file.stat().st_size
    )
    log.write_bytes(log.read_bytes().replace(b"a", b"b"))
    kept = tree(topic_directory(root))
    with Store.open(root, layout=layout) as after:
        for _ in range(2):
            with pytest.raises(DamagedLogError, match="move the intent"):
                after.append(TOPIC, 0, [b"next"])
    assert tree(topic_directory(root)) == kept


@pytest.mark.parametrize("layout", ["cursus", "cursus-broker", "rustlog"])
def test_a_version_is_not_skipped_in_a_topic_that_the_broker_recreated(
    tmp_path: Path, layout: str
) -> None:
    root, other = tmp_path / "log", tmp_path / "other"
    store = make(root, layout)
    make(other, layout).close()
    for job in ("old", "new"):
        stage = store.stage(job)
        stage.write(TOPIC, 0, columns_of([job.encode()]))
        assert not store.commit(job, stage.finish(), app="nightly", version=1).skipped
        if job == "old":
            store.delete_topic(TOPIC)
            topic_directory(other).rename(topic_directory(other, root))
            store = Store.open(root, layout=layout)
    assert read(store).values == [b"new"]


def leave_interrupted_commit(root: Path, layout: str, partitions: int = 1) -> None:
    """A committer that was killed after its intent, before it added anything."""
    vfs = faulty(root)
    dying = Store(vfs, StoreConfig(), layout)
    stage = dying.stage("job")
    for partition in range(partitions):
        stage.write(TOPIC, partition, columns_of([b"committed"]))
    parts = stage.finish()
    vfs.fail("pwritev", errno.EIO, path=".log")
    with pytest.raises(CommitUnknownError):
        dying.commit("job", parts)


def topic_directory(root: Path, as_below: Path | None = None) -> Path:
    """Where the broker keeps the topic, or would below another root."""
    found = next(
        path for path in root.rglob(TOPIC) if path.is_dir() and ".cursus-spark" not in str(path)
    )
    return found if as_below is None else as_below / found.relative_to(root)
