"""What every backend of objects promises, and the gate that finds those that do not."""

from __future__ import annotations

import errno
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from storage_core.errors import StoreSemanticsError
from storage_core.objects.backend import ObjectBackend, read_object
from storage_core.objects.semantics import require_semantics, semantics_problems
from storage_core.objects.vfs_backend import TEMPORARY, VfsBackend
from storage_core.vfs import PosixVfs
from tests.support.faulty_vfs import CrashError, FaultyVfs, faulty
from tests.support.objects.memory_objects import MemoryBackend

Make = Callable[[Path], ObjectBackend]
BACKENDS: dict[str, Make] = {
    "memory": lambda _: MemoryBackend(),
    "vfs": lambda path: VfsBackend(PosixVfs(path)),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectBackend:
    return BACKENDS[request.param](tmp_path)


def keys(backend: ObjectBackend, prefix: str, after: str = "") -> list[str]:
    return [info.key for info in backend.list_after(prefix, after)]


def test_every_backend_passes_the_gate(backend: ObjectBackend) -> None:
    require_semantics(backend, rounds=10)
    assert keys(backend, "check/") == []


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("no create", "a second create"),
        ("check then put", "creates of one object at once"),
        ("stale list", "a listing does not show"),
        ("no tags", "conditional replacements at once"),
    ],
)
def test_gate_refuses_servers_that_ignore_conditions(broken: str, problem: str) -> None:
    backend = MemoryBackend(broken)
    assert any(problem in found for found in semantics_problems(backend, 3))
    with pytest.raises(StoreSemanticsError, match="memory cannot hold a store"):
        require_semantics(backend)


def test_the_long_gate_finds_listings_that_end_after_a_page() -> None:
    assert list(semantics_problems(MemoryBackend("one page"), 3)) == []
    (problem, _) = semantics_problems(MemoryBackend("one page"), 20)
    assert problem == "a listing of many objects is not complete and in order"
    assert list(semantics_problems(MemoryBackend(), 20)) == []


def test_created_objects_are_read_listed_and_deleted(backend: ObjectBackend) -> None:
    backend.create("logs/a/00.commit", [b"first", b", second"])
    backend.create("logs/a/01.commit", [])
    backend.put("logs/b/00.commit", [b"x"])
    assert read_object(backend, "logs/a/00.commit") == b"first, second"
    assert read_object(backend, "logs/a/01.commit") == b""
    assert [(info.key, info.size) for info in backend.list_after("logs/a/")] == [
        ("logs/a/00.commit", 13),
        ("logs/a/01.commit", 0),
    ]
    assert keys(backend, "logs/") == ["logs/a/00.commit", "logs/a/01.commit", "logs/b/00.commit"]
    assert keys(backend, "logs/", "logs/a/01.commit") == ["logs/b/00.commit"]
    assert keys(backend, "data/") == []
    backend.delete(["logs/a/00.commit", "logs/a/00.commit", "logs/none"])
    backend.delete(["logs/a/01.commit", "logs/b/00.commit"])
    assert keys(backend, "logs/") == []
    backend.create("logs/a/00.commit", [b"again"])
    assert read_object(backend, "logs/a/00.commit") == b"again"


def test_listings_are_in_the_order_of_keys_and_not_of_directories(backend: ObjectBackend) -> None:
    """Of a directory and names that begin with its name, some stand before what is in it."""
    found = [f"data/h/{job}/{name}" for job in ("job", "job-1", "job.2") for name in "ab"]
    found += ["data/h/job.frames", "data/h/job0", "data/x"]
    for key in found:
        backend.put(key, [b"x"])
    backend.replace_if("data/h/job!", [b"x"], None)
    found = sorted([*found, "data/h/job!"])
    assert keys(backend, "data/") == found
    for at, after in enumerate(found):
        assert keys(backend, "data/", after) == found[at + 1 :], after
        for most in (1, 2, 5):
            some = [info.key for info in backend.list_after("data/", after, most)]
            assert some == found[at + 1 :][:most], (after, most)
    inside = [key for key in found if key.startswith("data/h/")]
    for after in ("data/h/job", "data/h/job-1", "data/h/job.", "data/h/job/", "data/h/i"):
        wanted = [key for key in inside if key > after]
        assert keys(backend, "data/h/", after) == wanted, after
        assert [info.key for info in backend.list_after("data/h/", after, 3)] == wanted[:3], after


def test_ranges_of_an_object(backend: ObjectBackend) -> None:
    backend.put("data/x", [b"0123456789"])
    found = backend.get_ranges("data/x", [(2, 3), (8, 100), (10, 5), (0, 0)]).pieces
    assert [bytes(piece) for piece in found] == [b"234", b"89", b"", b""]
    with pytest.raises(FileNotFoundError):
        backend.get_ranges("data/y", [(0, 1)])
    assert read_object(backend, "data/y") is None


def test_put_replaces_and_create_does_not(backend: ObjectBackend) -> None:
    backend.put("logs/a/_last", [b"1"])
    backend.put("logs/a/_last", [b"2"])
    assert read_object(backend, "logs/a/_last") == b"2"
    with pytest.raises(FileExistsError):
        backend.create("logs/a/_last", [b"3"])
    assert read_object(backend, "logs/a/_last") == b"2"


def test_replacements_follow_one_another_by_tag(backend: ObjectBackend) -> None:
    key = "groups/g.json"
    backend.replace_if(key, [b"0"], None)
    with pytest.raises(FileExistsError):
        backend.replace_if(key, [b"x"], None)
    first = backend.get_ranges(key)
    for number in range(1, 12):
        backend.replace_if(key, [b"%d" % number], backend.get_ranges(key).tag)
    with pytest.raises(FileExistsError):
        backend.replace_if(key, [b"x"], first.tag)
    assert read_object(backend, key) == b"11"
    assert keys(backend, "groups/") == [key]
    backend.delete([key])
    assert keys(backend, "groups/") == []
    assert read_object(backend, key) is None


def _create(path: str, number: int, won: multiprocessing.Queue[tuple[int, int]]) -> None:
    backend = VfsBackend(PosixVfs(path))
    for each in range(100):
        try:
            backend.create(f"logs/a/{each:03d}", [b"%d" % number])
            won.put((each, number))
        except FileExistsError:
            continue


@pytest.mark.slow
def test_racing_processes_have_one_winner_each(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    won: multiprocessing.Queue[tuple[int, int]] = context.Queue()
    processes = [
        context.Process(target=_create, args=(str(tmp_path), number, won)) for number in range(4)
    ]
    for process in processes:
        process.start()
    found = [won.get(timeout=60) for _ in range(100)]
    for process in processes:
        process.join()
    assert won.empty()
    assert sorted(each for each, _ in found) == list(range(100))
    backend = VfsBackend(PosixVfs(tmp_path))
    for each, number in found:
        assert read_object(backend, f"logs/a/{each:03d}") == b"%d" % number
    assert os.listdir(tmp_path / TEMPORARY) == []


def test_a_create_that_fails_or_crashes_leaves_no_object(tmp_path: Path) -> None:
    for calls in range(30):
        vfs = faulty(tmp_path / str(calls))
        (tmp_path / str(calls)).mkdir()
        vfs.crash_after = calls
        try:
            VfsBackend(vfs).create("logs/a/1", [b"whole"])
        except CrashError:
            pass
        else:
            assert calls > 6
            break
        found = read_object(VfsBackend(PosixVfs(tmp_path / str(calls))), "logs/a/1")
        assert found in (None, b"whole")
    else:
        pytest.fail("the create makes more than 30 changes")
    vfs = faulty(tmp_path)
    vfs.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match="error"):
        VfsBackend(vfs).create("logs/b/1", [b"whole"])
    assert keys(VfsBackend(vfs), "logs/b/") == []
    assert os.listdir(tmp_path / TEMPORARY) == []


@pytest.mark.parametrize("call", ["create", "put"])
def test_a_directory_that_another_process_removes_is_made_again(tmp_path: Path, call: str) -> None:
    """Who deletes the last object of a directory removes it: a writer may be about to use it."""
    vfs = faulty(tmp_path)
    backend = VfsBackend(vfs)
    backend.put("data/h/job/first", [b"x"])
    for kind in ("rename", "link", "mkdir"):
        (tmp_path / "data/h/job/first").unlink(missing_ok=True)
        removed = list[str]()

        def hook(made: str, path: str, kind: str = kind, removed: list[str] = removed) -> None:
            if made == kind and "data" in path and not removed:
                removed.append(path)
                for name in ("data/h/job", "data/h"):
                    with suppress(OSError):
                        (tmp_path / name).rmdir()

        vfs.hook = hook
        with suppress(OSError):
            (tmp_path / "data/h/job").rmdir()
        getattr(backend, call)(f"data/h/job/{kind}", [b"late"])
        vfs.hook = None
        assert read_object(backend, f"data/h/job/{kind}") == b"late"
        (tmp_path / f"data/h/job/{kind}").unlink()


def test_a_link_whose_reply_was_lost_is_our_own(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    link = vfs.inner.link

    def twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    vfs.inner.link = twice  # type: ignore[method-assign]
    backend = VfsBackend(vfs)
    backend.create("logs/a/1", [b"ours"])
    assert read_object(backend, "logs/a/1") == b"ours"
    with pytest.raises(FileExistsError):
        backend.create("logs/a/1", [b"theirs"])


def test_readers_sync_a_name_before_they_rely_on_it(tmp_path: Path) -> None:
    VfsBackend(PosixVfs(tmp_path)).create("logs/a/1", [b"x"])
    vfs = faulty(tmp_path)
    backend = VfsBackend(vfs)
    vfs.clock_us = PosixVfs(tmp_path).now_us() + 10**6
    for _ in range(3):
        assert read_object(backend, "logs/a/1") == b"x"
    assert [call.path for call in vfs.calls if call.kind == "fsync_dir"] == ["logs/a"]


def replaced(backend: VfsBackend, key: str, value: bytes) -> None:
    backend.replace_if(key, [value], backend.get_ranges(key).tag)


def aged(directory: Path, seconds: float) -> None:
    """Make files older, by the clock of their file system."""
    for path in directory.iterdir():
        stat = path.stat()
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - int(seconds * 1e9)))


def overtaken(
    tmp_path: Path, vfs: FaultyVfs, act: Callable[[VfsBackend], None], *, stale: bool = True
) -> None:
    """Replace an object; others act right before the replacement gets its name.

    With ``stale`` the writer goes on to list what was there before, as an NFS client may.
    """
    backend, others = VfsBackend(vfs), VfsBackend(PosixVfs(tmp_path))
    for number in range(3):
        backend.replace_if("groups/g", [b"%d" % number], f"{number:020d}" if number else None)
    before = vfs.listdir("groups/g~")

    def hook(kind: str, _: str) -> None:
        if kind == "link":
            vfs.hook = None
            act(others)
            if stale:
                vars(vfs)["listdir"] = lambda _: before

    vfs.hook = hook
    try:
        replaced(backend, "groups/g", b"lost")
    finally:
        vars(vfs).pop("listdir", None)


@pytest.mark.row(45)
def test_a_replacement_that_others_overtook_is_refused_whatever_the_clock_says(
    tmp_path: Path,
) -> None:
    """The file server and the machine that removes old versions have clocks of their own."""
    vfs = faulty(tmp_path)
    ahead = faulty(tmp_path)
    ahead.clock_us = PosixVfs(tmp_path).now_us() + 6 * 3600 * 10**6

    def act(_: VfsBackend) -> None:
        for number in range(5):
            replaced(VfsBackend(ahead), "groups/g", b"other %d" % number)

    with pytest.raises(FileExistsError):
        overtaken(tmp_path, vfs, act)
    assert read_object(VfsBackend(vfs), "groups/g") == b"other 4"


@pytest.mark.row(45)
def test_a_replacement_on_a_machine_that_was_suspended_is_not_believed(tmp_path: Path) -> None:
    """Its monotonic clock stood still while others removed the versions after its own."""
    vfs = faulty(tmp_path)

    def act(others: VfsBackend) -> None:
        for number in range(5):
            aged(tmp_path / "groups/g~", 3600)
            replaced(others, "groups/g", b"other %d" % number)
        vfs.clock_us = vfs.now_us() + 3600 * 10**6

    with pytest.raises(TimeoutError):
        overtaken(tmp_path, vfs, act)
    assert read_object(VfsBackend(vfs), "groups/g") == b"other 4"


def test_a_replacement_is_not_believed_below_a_higher_version(tmp_path: Path) -> None:
    """The clock of the file server jumped, and the version of its number was removed at once."""

    def act(others: VfsBackend) -> None:
        for number in range(5):
            aged(tmp_path / "groups/g~", 3600)
            replaced(others, "groups/g", b"other %d" % number)

    with pytest.raises(TimeoutError):
        overtaken(tmp_path, faulty(tmp_path), act, stale=False)
    assert read_object(VfsBackend(faulty(tmp_path)), "groups/g") == b"other 4"


def test_old_temporary_files_and_versions_are_swept(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    backend = VfsBackend(vfs)
    backend.put("x/y", [b""])
    (tmp_path / TEMPORARY / "left").touch()
    assert backend.sweep() == 0
    for number in range(4):
        tag = backend.get_ranges("groups/g").tag if number else None
        backend.replace_if("groups/g", [b"%d" % number], tag)
    vfs.clock_us = PosixVfs(tmp_path).now_us() + 2 * 3600 * 10**6
    assert backend.sweep() == 0, "the clock of the file system counts"
    aged(tmp_path / "groups/g~", 200)
    replaced(backend, "groups/g", b"next")
    assert len(os.listdir(tmp_path / "groups/g~")) == 5, "a listing of NFS may not know them"
    aged(tmp_path / TEMPORARY, 2 * 3600)
    aged(tmp_path / "groups/g~", 2 * 3600)
    assert backend.sweep() == 1
    assert os.listdir(tmp_path / TEMPORARY) == []
    backend.replace_if("groups/g", [b"last"], backend.get_ranges("groups/g").tag)
    assert len(os.listdir(tmp_path / "groups/g~")) == 2
    assert read_object(backend, "groups/g") == b"last"
