"""A store that belongs to somebody else: whatever stands in it, nothing outside is touched."""

from __future__ import annotations

import ast
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage_core import Store, StoreConfig, metafile
from storage_core.errors import DamagedMetadataError, StorageError
from storage_core.vfs import PosixVfs
from tests.faults import FaultyVfs
from tests.fuzz.checks import written
from tests.fuzz.trees import CORPUS, TREES, native
from tests.processes import Processes
from tests.stores import columns_of, refused, tree, values

ROOT = Path(__file__).resolve().parent.parent.parent
HURRIED = StoreConfig(lock_timeout_ms=20)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything in it: segments, indexes, a ledger, a group, a pending commit."""
    path = tmp_path_factory.mktemp("original") / "store"
    path.mkdir()
    native(path)
    return path


def append(store: Store) -> None:
    store.append("t", 0, [b"more"])
    store.append("t", 1, [b"more" * 2000])


def commit(store: Store) -> None:
    staging = store.stage("job")
    staging.write("t", 1, columns_of([b"staged"]))
    store.commit("job", staging.finish(), app="app", version=9)


def retain(store: Store) -> None:
    store.roll("t", 0)
    store.alter_topic("t", retention_bytes=1)
    store.retain()


def grow(store: Store) -> None:
    store.add_partitions("t", 3)
    store.create_topic("new", 1)


ACTIONS: list[Callable[[Store], object]] = [
    append,
    commit,
    lambda store: store.abort("job-2", app="app"),
    retain,
    grow,
    lambda store: store.repair(),
    lambda store: store.commit_offsets("readers", {"t": {0: 1}}),
    lambda store: list(store.read("t", 0)),
    lambda store: list(store.check()),
    lambda store: store.delete_topic("t"),
    lambda store: store.close(),
]


def do_everything(path: Path) -> int:
    """Whatever a program does with a store; how much of it was refused, always in typed errors."""
    denied = 0
    try:
        vfs = FaultyVfs(PosixVfs(path), real_syncs=False)
        for action in ACTIONS:
            try:
                action(Store(vfs, HURRIED))
            except StorageError:
                denied += 1
    except StorageError:
        denied += 1
    return denied


def places(path: Path) -> Iterator[Path]:
    """Every file and directory of a store."""
    yield from sorted(path.rglob("*"))


def planted(original: Path, tmp_path: Path, plant: Callable[[Path, Path], None]) -> int:
    """Put something in the place of each file and directory, one at a time, and do everything.

    Returns how many places there were. The directory ``outside`` must stay as it is.
    """
    outside = tmp_path / "outside"
    shutil.copytree(original, outside)
    before = tree(outside)
    count = 0
    for place in places(original):
        path = tmp_path / "store"
        shutil.copytree(original, path)
        target = path / place.relative_to(original)
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        plant(target, outside / place.relative_to(original))
        do_everything(path)
        assert tree(outside) == before, place
        shutil.rmtree(path)
        count += 1
    return count


@pytest.mark.row(27)
def test_links_in_any_place_never_lead_a_write_outside(original: Path, tmp_path: Path) -> None:
    def link(place: Path, target: Path) -> None:
        place.symlink_to(target)

    assert planted(original, tmp_path, link) > 30


@pytest.mark.row(27)
@pytest.mark.timeout(120)
def test_pipes_in_any_place_never_make_us_wait(original: Path, tmp_path: Path) -> None:
    assert planted(original, tmp_path, lambda place, _: os.mkfifo(place)) > 30


@pytest.mark.row(27)
@pytest.mark.skipif(os.getuid() != 0, reason="only root makes devices")
def test_devices_in_any_place_are_refused(original: Path, tmp_path: Path) -> None:
    def device(place: Path, _: Path) -> None:
        os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # endless zeros

    try:
        assert planted(original, tmp_path, device) > 30
    except PermissionError:
        pytest.skip("this container makes no devices")


@pytest.mark.row(19)
@pytest.mark.parametrize("kind", ["intents", "ledger"])
def test_damaged_redo_records_and_ledger_refuse_writers_and_let_readers_read(
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
def test_forged_redo_records_lead_nowhere(
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
