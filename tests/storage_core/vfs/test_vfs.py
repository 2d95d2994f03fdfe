"""The real backend: files below one root, and nothing else, whatever stands in the tree."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from storage_core.errors import UnsafeFileError
from storage_core.vfs import PosixVfs
from storage_core.vfs.linux import filesystem, mount_point


@pytest.fixture
def vfs(tmp_path: Path) -> PosixVfs:
    root = tmp_path / "root"
    root.mkdir()
    return PosixVfs(root)


def create(vfs: PosixVfs, path: str, data: bytes = b"") -> None:
    fd = vfs.open(path, "create")
    vfs.pwritev(fd, [data], 0)
    vfs.close(fd)


def test_create_fails_if_the_name_exists(vfs: PosixVfs) -> None:
    create(vfs, "a")
    with pytest.raises(FileExistsError):
        vfs.open("a", "create")


def test_reads_and_writes_are_positional(vfs: PosixVfs) -> None:
    fd = vfs.open("a", "create")
    assert vfs.pwritev(fd, [b"xy", memoryview(b"z"), bytearray(b"w")], 3) == 4
    assert vfs.pread(fd, 100, 0) == b"\0\0\0xyzw"
    assert vfs.pread(fd, 2, 4) == b"yz"
    assert vfs.pread(fd, 5, 50) == b""
    vfs.truncate(fd, 4)
    assert vfs.fstat(fd).size == 4
    vfs.close(fd)


def test_more_buffers_than_one_call_takes_are_a_short_write(vfs: PosixVfs) -> None:
    fd = vfs.open("a", "create")
    assert vfs.pwritev(fd, [b"x"] * 3000, 0) == 1024
    vfs.close(fd)


@pytest.mark.row(27)
@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a//b", "..", "a/.."])
def test_paths_that_leave_the_root_are_refused(vfs: PosixVfs, path: str) -> None:
    vfs.mkdir("a")
    for call in (
        lambda: vfs.open(path, "read"),
        lambda: vfs.open(path, "create"),
        lambda: vfs.unlink(path),
    ):
        with pytest.raises((UnsafeFileError, OSError)):
            call()


@pytest.mark.row(27)
def test_symlinks_are_never_followed(vfs: PosixVfs, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = Path(vfs.root)
    (root / "dir").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "dangling").symlink_to(outside / "new")
    for path in ("dir/secret", "file", "dangling"):
        for mode in ("read", "write"):
            with pytest.raises(UnsafeFileError):
                vfs.open(path, mode)
    with pytest.raises(UnsafeFileError):
        vfs.open("dir/new", "create")
    with pytest.raises(FileExistsError):
        vfs.open("dangling", "create")
    with pytest.raises(UnsafeFileError):
        vfs.listdir("dir")
    with pytest.raises(UnsafeFileError):
        vfs.mkdir("dir/below")
    found = vfs.stat("file")
    assert found is not None
    assert found.kind == "other"
    assert sorted(os.listdir(outside)) == ["secret"]


@pytest.mark.row(27)
def test_fifos_devices_and_directories_are_refused_without_hanging(vfs: PosixVfs) -> None:
    os.mkfifo(Path(vfs.root) / "fifo")
    vfs.mkdir("dir")
    for path in ("fifo", "dir"):
        for mode in ("read", "write"):
            with pytest.raises(UnsafeFileError) as caught:
                vfs.open(path, mode)
            assert caught.value.path == path


def test_file_in_the_place_of_a_directory_is_refused(vfs: PosixVfs) -> None:
    create(vfs, "a")
    with pytest.raises(UnsafeFileError):
        vfs.open("a/b", "read")


def test_root_itself_may_be_reached_through_a_link(vfs: PosixVfs, tmp_path: Path) -> None:
    create(vfs, "a", b"x")
    (tmp_path / "alias").symlink_to(vfs.root)
    assert PosixVfs(tmp_path / "alias").listdir("") == ["a"]


def test_stat_of_nothing_is_none(vfs: PosixVfs) -> None:
    assert vfs.stat("nope") is None
    assert vfs.stat("nope/below") is None


def test_identity_tells_a_file_from_its_successor(vfs: PosixVfs) -> None:
    create(vfs, "a")
    before = vfs.stat("a")
    create(vfs, "b")
    vfs.rename("b", "a")
    after = vfs.stat("a")
    assert before is not None
    assert after is not None
    assert before.identity != after.identity


def test_link_does_not_replace(vfs: PosixVfs) -> None:
    create(vfs, "a", b"1")
    create(vfs, "b", b"2")
    with pytest.raises(FileExistsError):
        vfs.link("a", "b")
    vfs.link("a", "c")
    assert Path(vfs.root, "c").read_bytes() == b"1"


def test_map_outlives_descriptor_and_name(vfs: PosixVfs) -> None:
    create(vfs, "a", b"mapped")
    fd = vfs.open("a", "read")
    view = vfs.map(fd)
    vfs.close(fd)
    vfs.unlink("a")
    assert bytes(view) == b"mapped"


def test_lock_excludes_another_descriptor_of_this_process(vfs: PosixVfs) -> None:
    create(vfs, "lock")
    one, two = vfs.open("lock", "write"), vfs.open("lock", "write")
    assert vfs.try_lock(one)
    assert not vfs.try_lock(two)
    vfs.unlock(one)
    assert vfs.try_lock(two)
    vfs.close(one)
    vfs.close(two)


def test_sealed_file_loses_its_write_permission(vfs: PosixVfs) -> None:
    create(vfs, "a")
    fd = vfs.open("a", "write")
    vfs.make_read_only(fd)
    vfs.close(fd)
    assert Path(vfs.root, "a").stat().st_mode & 0o777 == 0o444


def test_descriptors_are_not_leaked_by_failed_calls(vfs: PosixVfs) -> None:
    os.mkfifo(Path(vfs.root) / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(UnsafeFileError):
            vfs.open("fifo", "read")
        with pytest.raises(FileNotFoundError):
            vfs.open("no/such/file", "read")
    assert len(os.listdir("/proc/self/fd")) == before


def test_backend_pickles_as_its_path(vfs: PosixVfs) -> None:
    assert pickle.loads(pickle.dumps(vfs)).root == vfs.root


def test_boot_id_is_sixteen_steady_bytes(vfs: PosixVfs) -> None:
    assert len(vfs.boot_id()) == 16
    assert vfs.boot_id() == vfs.boot_id()


def test_filesystem_of_a_known_mount_is_named() -> None:
    assert filesystem("/proc") == "proc"
    assert filesystem("/proc/self") == "proc"


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("/", "/"),
        ("/mnt/my\\040disk", "/mnt/my disk"),
        ("/mnt/back\\134slash", "/mnt/back\\slash"),
        ("/mnt/dätä", "/mnt/dätä"),
    ],
)
def test_mount_points_are_read_as_the_kernel_spells_them(field: str, path: str) -> None:
    assert mount_point(field) == path


def test_make_root_makes_the_whole_way(tmp_path: Path) -> None:
    vfs = PosixVfs(tmp_path / "a/b/c")
    vfs.make_root()
    vfs.make_root()
    assert vfs.listdir("") == []
