"""A damaged ledger entry or intent: who is refused, who goes on, and that nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_core import Store
from storage_core.errors import CommitUnknownError, DamagedMetadataError
from tests.support.faulty_vfs import CrashError, faulty
from tests.support.stores import (
    TOPIC,
    after_reboot,
    columns_of,
    make_store,
    on,
    reopen,
    segments,
    tree,
    values,
)


def commit(store: Store, app: str, version: int) -> None:
    job = f"job-{app}-{version}"
    stage = store.stage(job)
    stage.write(TOPIC, 0, columns_of([f"{app}{version}".encode()]))
    store.commit(job, stage.finish(), app=app, version=version)


def entry_of(path: Path, app: str) -> Path:
    """The ledger's file of an application; its fields say the name in the open."""
    (found,) = (
        file for file in (path / "meta/ledger").glob("*.json") if f'"{app}"' in file.read_text()
    )
    return found


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The entry of application A is damaged; that of B is sound."""
    with make_store(tmp_path) as store:
        commit(store, "A", 1)
        commit(store, "B", 1)
        store.append(TOPIC, 0, [b"plain"])
    entry = entry_of(tmp_path, "A")
    entry.with_suffix(".copy").write_bytes(entry.read_bytes())
    entry.write_bytes(entry.read_bytes()[:-20] + b"x" * 20)
    return tmp_path


BEFORE = [b"A1", b"B1", b"plain"]


@pytest.mark.row(19)
def test_only_the_application_of_a_damaged_entry_cannot_commit(damaged: Path) -> None:
    store = reopen(damaged)
    # Whether this version was committed before stands there alone: it could be doubled.
    for version in (1, 2):
        with pytest.raises(DamagedMetadataError):
            commit(store, "A", version)
    # The end of the log is known without the entry, and so is what B has committed.
    commit(store, "B", 1)
    commit(store, "B", 2)
    store.append(TOPIC, 0, [b"more"])
    assert values(store) == [*BEFORE, b"B2", b"more"]


@pytest.mark.row(19)
def test_recovery_does_not_go_on_without_a_damaged_entry(damaged: Path) -> None:
    """It may hold the recovery point: without it, durable records could look like a torn tail."""
    logs = tree(segments(damaged))
    for write in (
        lambda store: store.append(TOPIC, 0, [b"more"]),
        lambda store: commit(store, "B", 2),
        lambda store: store.repair(),
    ):
        with pytest.raises(DamagedMetadataError):
            write(after_reboot(damaged))
    assert tree(segments(damaged)) == logs
    assert values(after_reboot(damaged)) == BEFORE
    (copy,) = (damaged / "meta/ledger").glob("*.copy")
    copy.rename(copy.with_suffix(".json"))
    store = after_reboot(damaged)
    store.append(TOPIC, 0, [b"more"])
    commit(store, "A", 1)
    commit(store, "A", 2)
    assert values(store) == [*BEFORE, b"more", b"A2"]


@pytest.mark.row(19)
def test_a_damaged_intent_refuses_every_writer(tmp_path: Path) -> None:
    """Nobody can tell which partitions it names."""
    make_store(tmp_path).close()
    reopen(tmp_path).create_topic("other")
    vfs = faulty(tmp_path)
    dying = on(vfs)
    dying.append(TOPIC, 0, [b"plain"])

    def die_when_decided(kind: str, path: str) -> None:
        if kind == "pwritev" and path.endswith(".log"):
            raise CrashError

    vfs.hook = die_when_decided
    with pytest.raises((CrashError, CommitUnknownError)):
        commit(dying, "A", 1)
    (intent,) = (tmp_path / "meta/intents").glob("*.json")
    sound = intent.read_bytes()
    intent.write_bytes(sound[:-20] + b"x" * 20)
    for write in (
        lambda store: store.append(TOPIC, 0, [b"more"]),
        lambda store: store.append("other", 0, [b"more"]),
        lambda store: commit(store, "A", 1),
        lambda store: commit(store, "B", 1),
    ):
        with pytest.raises(DamagedMetadataError):
            write(reopen(tmp_path))
        assert values(reopen(tmp_path)) == [b"plain"]
    intent.write_bytes(sound)
    reopen(tmp_path).append(TOPIC, 0, [b"more"])
    assert values(reopen(tmp_path)) == [b"plain", b"A1", b"more"]
