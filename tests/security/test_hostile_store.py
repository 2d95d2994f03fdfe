"""A store that belongs to another user: whatever stands in it, nothing outside is touched."""

from __future__ import annotations

import ast
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import DamagedMetadataError, StorageError
from storage_core.io import json_files as metafile
from storage_core.vfs import PosixVfs
from tests.fuzz.checks import TOPICS, written
from tests.fuzz.trees import CORPUS, KINDS, TREES, foreign, native
from tests.support.crashed_stores import let_go
from tests.support.faulty_vfs import FaultyVfs
from tests.support.paths import ROOT
from tests.support.processes import Processes
from tests.support.stores import columns_of, refused, tree, values

HURRIED = StoreConfig(lock_timeout_ms=20)
# Hints, what is being removed, and locks that nothing here takes: without them all goes well.
NOT_NEEDED = re.compile(
    r"\.(idx|timeidx|stats|tomb)$"
    r"|^meta/(lock|upkeep(/.*)?|ledger/locks/\d\d)$"
    r"|^topics/buried/(0/segments/0+[24]|1/segments/0+[02])\.log$"
    r"|^\.cursus-spark/index/lock$"
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything in it: segments, indexes, a ledger, a group, a pending commit."""
    path = tmp_path_factory.mktemp("original") / "store"
    path.mkdir()
    native(path)
    return path


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A broker's directory of each layout, with our own files beside: a ledger, a group, notes."""
    made = {}
    for layout, kind in KINDS.items():
        path = made[layout] = tmp_path_factory.mktemp(layout) / "store"
        path.mkdir()
        foreign(path, kind)
        with Store.open(path) as store:
            store.commit_offsets("readers", {"orders": {0: 1}})
            commit(store, "orders", 1)
            read(store, "orders")
    return made


def append(store: Store, topic: str = "t") -> None:
    for partition in range(store.topic(topic).partitions):
        store.append(topic, partition, [b"more" * 2000])


def commit(store: Store, topic: str = "t", version: int = 9) -> None:
    staging = store.stage("job")
    for partition in range(store.topic(topic).partitions):
        staging.write(topic, partition, columns_of([b"staged"]))
    store.commit("job", staging.finish(), app="app", version=version)


def retain(store: Store, topic: str) -> None:
    store.roll(topic, 0)
    if store.layout == "native":
        store.alter_topic(topic, retention_bytes=1)
    store.retain()


def grow(store: Store, topic: str) -> None:
    store.add_partitions(topic, 3)
    store.create_topic("new", 1)


def read(store: Store, topic: str) -> None:
    for partition in range(store.topic(topic).partitions):
        list(store.read(topic, partition))
        if store.layout == "native":
            store.offset_for_timestamp(topic, partition, 0)
    store.committed_offsets("readers")


ACTIONS: list[Callable[[Store, str], object]] = [
    read,
    append,
    commit,
    lambda store, _: store.abort("job-2", app="app"),
    retain,
    grow,
    lambda store, _: store.repair(),
    lambda store, topic: store.commit_offsets("readers", {topic: {0: 1}}),
    read,
    lambda store, _: list(store.check()),
    lambda store, topic: store.delete_topic(topic),
    lambda store, _: store.close(),
]
USES = ("pread", "pwritev", "map", "truncate", "send", "make_read_only")


def do_everything(path: Path, layout: str = "native") -> int:
    """Whatever a program does with a store; how much of it was refused, always in typed errors.

    Nothing but a plain file is read or written.
    """
    denied, unexpected = 0, list[str]()

    def look(kind: str, used: str) -> None:
        # Of a file that was renamed or removed since nothing stands there.
        if kind in USES and os.path.lexists(path / used) and not is_plain(path / used):
            unexpected.append(f"{kind} {used}")

    vfs = FaultyVfs(PosixVfs(path), real_syncs=False, hook=look)
    for topic in TOPICS[layout]:
        for action in ACTIONS:
            try:
                action(Store(vfs, HURRIED, layout), topic)
            except StorageError:
                denied += 1
    let_go()
    assert unexpected == []
    return denied


def is_plain(path: Path) -> bool:
    """Whether it and all above it are what they seem."""
    return stat.S_ISREG(path.lstat().st_mode) and path.resolve() == path


def places(path: Path) -> Iterator[Path]:
    """Every file and directory of a store."""
    yield from sorted(path.rglob("*"))


def planted(
    layout: str, original: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> set[str]:
    """Put something in the place of each file and directory, one at a time, and do everything.

    Returns the places where nobody was refused. The directory ``outside`` must stay as it is.
    """
    outside, path = tmp_path / "outside", tmp_path / "store"
    shutil.copytree(original, outside)
    shutil.copytree(original, path)
    before, usual, unnoticed = tree(outside), do_everything(path, layout), set[str]()
    for place in places(original):
        name = str(place.relative_to(original))
        shutil.rmtree(path)
        shutil.copytree(original, path)
        target = path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        plant(target, outside / name)
        if do_everything(path, layout) <= usual:
            unnoticed.add(name)
        assert tree(outside) == before, place
    return unnoticed


def check_planted(
    original: Path, brokers: dict[str, Path], tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    for layout, store in {"native": original, **brokers}.items():
        unnoticed = planted(layout, store, tmp_path / layout, plant)
        assert [name for name in unnoticed if not NOT_NEEDED.search(name)] == [], layout


@pytest.mark.slow
@pytest.mark.row(27)
@pytest.mark.timeout(0)
def test_links_in_any_place_are_refused_and_never_lead_a_write_outside(
    original: Path, brokers: dict[str, Path], tmp_path: Path
) -> None:
    check_planted(original, brokers, tmp_path, lambda place, target: place.symlink_to(target))


@pytest.mark.slow
@pytest.mark.row(27)
@pytest.mark.timeout(600)
def test_pipes_in_any_place_are_refused_and_never_make_us_wait(
    original: Path, brokers: dict[str, Path], tmp_path: Path
) -> None:
    check_planted(original, brokers, tmp_path, lambda place, _: os.mkfifo(place))


@pytest.mark.slow
@pytest.mark.row(27)
@pytest.mark.timeout(0)
@pytest.mark.skipif(os.getuid() != 0, reason="only root makes devices")
def test_devices_in_any_place_are_refused_and_never_read(
    original: Path, brokers: dict[str, Path], tmp_path: Path
) -> None:
    def device(place: Path, _: Path) -> None:
        try:
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # endless zeros
        except PermissionError:
            pytest.skip("this container makes no devices")

    check_planted(original, brokers, tmp_path, device)


@pytest.mark.row(19)
@pytest.mark.parametrize("kind", ["intents", "ledger"])
def test_damaged_intents_and_ledger_refuse_writers_and_let_readers_read(
    kind: str, original: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(original, path)
    expected = values(Store.open(path))
    (file,) = (path / "meta" / kind).glob("*.json")
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    assert values(Store.open(path)) == expected
    before = tree(path / "topics")
    with pytest.raises(DamagedMetadataError):
        commit(Store.open(path))
    assert values(Store.open(path)) == expected
    logs = {name: data for name, data in before.items() if name.endswith(".log")}
    now = tree(path / "topics")
    assert {name: now[name] for name in logs} == logs


@pytest.mark.row(30)
@pytest.mark.parametrize(
    "change",
    [
        {"path": "../outside.frames"},
        {"path": "staging/../../outside.frames"},
        {"path": "/etc/passwd"},
        {"path": "staging/job-2/..frames/x.frames"},
        {"topic": "../t"},
        {"partition": -1},
        {"records": 1 << 70},
        {"runs": [[0, -5]]},
        {"checksum": True},
    ],
)
def test_forged_intents_lead_nowhere(
    change: dict[str, object], original: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(original, path)
    outside = tmp_path / "outside.frames"
    outside.write_bytes(b"not yours")
    (file,) = (path / "meta" / "intents").glob("*.json")
    fields = metafile.load(file.read_bytes(), "x")
    fields["partitions"][0]["parts"][0] |= change
    file.write_bytes(metafile.dump(fields))
    assert refused(StorageError, append, Store(PosixVfs(path), HURRIED))
    assert outside.read_bytes() == b"not yours"
    assert values(Store.open(path)) == values(Store.open(original))


@pytest.mark.row(19)
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("intents", {"topics": {}}),
        ("intents", {"topics": {"../t": "x"}}),
        ("intents", {"job": "../.."}),
        ("intents", {"transaction": "../../x"}),
        ("intents", {"partitions": [{}]}),
        ("intents", {"version": []}),
        ("ledger", {"ends": {"0": []}}),
        ("ledger", {"ends": {"x": 1}}),
        ("ledger", {"ends": {"9" * 400: 1}}),
        ("ledger", {"version": "1"}),
    ],
)
def test_contents_nobody_wrote_are_damage_and_readers_go_on(
    kind: str, change: dict[str, object], original: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(original, path)
    (file,) = (path / "meta" / kind).glob("*.json")
    fields = metafile.load(file.read_bytes(), "x")
    file.write_bytes(metafile.dump({**fields, **change}))
    assert refused(DamagedMetadataError, commit, Store(PosixVfs(path), HURRIED))
    assert values(Store.open(path)) == values(Store.open(original))


@pytest.mark.row(28)
@pytest.mark.parametrize("layout", TREES)
def test_directories_without_permission_are_read_and_refuse_writers(layout: str) -> None:
    """Outside of pytest's directories, which only their owner may enter."""
    path = Path(tempfile.mkdtemp(prefix="cursus-closed-"))
    topic = "t" if layout == "native" else "orders"
    try:
        shutil.copytree(CORPUS / layout, path, dirs_exist_ok=True)
        list(Store.open(path).read(topic, 0))  # leaves its notes of a broker's files
        for place in (path, *places(path)):
            place.chmod(0o555 if place.is_dir() else 0o444)
        before = tree(path)
        count = len(written(layout)[topic, 0])
        user = 65534 if os.getuid() == 0 else os.getuid()
        with Processes() as processes:
            child = processes.start("without_permission", path, topic=topic, user=user)
            read, *said, checked = child.lines()
        assert (read, checked) == (f"read {count}", "errors 0")
        outcomes = dict(line.split() for line in said)
        assert len(outcomes) == 11
        assert set(outcomes.values()) == {"NotWritableError"}, outcomes
        assert tree(path) == before
    finally:
        for place in (path, *places(path)):
            place.chmod(0o755)
        shutil.rmtree(path)


def test_files_can_be_changed_by_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir()
    before = os.umask(0)
    try:
        native(path)
        do_everything(path)
    finally:
        os.umask(before)
    for place in places(path):
        mode = stat.S_IMODE(place.stat().st_mode)
        assert not mode & 0o022, (place, oct(mode))
        assert place.is_dir() or not mode & 0o7111, (place, oct(mode))


@pytest.mark.row(30)
def test_nothing_on_disk_is_a_pickle_and_nothing_loads_one(original: Path) -> None:
    for name, data in tree(original).items():
        assert not data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")), name
    banned = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    for file in [*(ROOT / "storage_core").rglob("*.py"), *(ROOT / "cursus_spark").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), file
            assert not {name.partition(".")[0] for name in names} & banned, file


@pytest.mark.row(26)
@pytest.mark.parametrize("name", ["..", ".", "a/b", "a\0b", "", "~x", "x" * 250, "a\nb", "é", "/"])
def test_names_that_leave_their_place_are_refused(
    name: str, original: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(original, path)
    before = tree(tmp_path)
    store = Store(PosixVfs(path), HURRIED)
    offsets = {"t": {0: 1}}
    assert refused(StorageError, store.create_topic, name)
    assert refused(StorageError, store.delete_topic, name)
    assert refused(StorageError, store.stage, name)
    assert refused(StorageError, store.abort, name)
    assert refused(StorageError, store.commit, name, [])
    assert refused(StorageError, store.commit_offsets, name, offsets)
    assert tree(tmp_path) == before
