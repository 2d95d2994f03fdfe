"""The cache of ranges: never wrong, never larger than its limit, never needed."""

from __future__ import annotations

import errno
import logging
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import parse_read_options
from cursus_spark.read import planning
from cursus_spark.read.task import read_slice
from storage_core import Store, StoreConfig
from storage_core.errors import ConfigError, DamagedLogError
from storage_core.objects.backend import Contents
from storage_core.objects.reads.range_cache import (
    BLOCK_BYTES,
    SUFFIX,
    CachedBackend,
    RangeCache,
)
from storage_core.objects.vfs_backend import VfsBackend
from storage_core.vfs import PosixVfs, Vfs
from tests.support.faulty_vfs import CrashError, Fault, FaultyVfs
from tests.support.objects.cache_readers import KEY, contents, read, read_at_random
from tests.support.objects.memory_objects import MemoryBackend
from tests.support.sizes import SEED
from tests.support.stores import TOPIC, columns_of, errors, values

LIMIT = 16 << 20


class Counting(MemoryBackend):
    """Keeps the ranges that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, tuple[int, int]]] = []

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]] | None = None) -> Contents:
        self.asked += [(key, each) for each in ranges or ()]
        return super().get_ranges(key, ranges)


@pytest.fixture
def inner() -> Counting:
    made = Counting()
    made.put(KEY, [contents(3 * BLOCK_BYTES + 1000)])
    return made


def cache_in(directory: Path | Vfs, limit: int = LIMIT) -> RangeCache:
    return RangeCache(PosixVfs(directory) if isinstance(directory, Path) else directory, limit)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_what_was_read_is_not_fetched_again(inner: Counting, tmp_path: Path) -> None:
    whole = inner.objects[KEY][0]
    first = CachedBackend(inner, cache_in(tmp_path))
    assert read(first, 10, 100) == whole[10:110]
    assert inner.asked == [(KEY, (0, BLOCK_BYTES))]
    inner.asked.clear()
    assert read(first, 0, len(whole)) == whole
    assert inner.asked == [(KEY, (BLOCK_BYTES, 3 * BLOCK_BYTES))], "one range for neighbours"
    inner.asked.clear()
    other = CachedBackend(inner, cache_in(tmp_path))  # as another process has it
    ranges = [(BLOCK_BYTES - 5, 10), (0, 0), (5, 2 * BLOCK_BYTES), (len(whole) - 7, 7)]
    pieces = other.get_ranges(KEY, ranges).pieces
    assert [bytes(piece) for piece in pieces] == [whole[at : at + size] for at, size in ranges]
    assert inner.asked == []


def test_only_data_objects_are_kept_and_all_else_passes(inner: Counting, tmp_path: Path) -> None:
    backend = CachedBackend(inner, cache_in(tmp_path))
    commit = "logs/a/00000000000000000001.commit"
    backend.create(commit, [b"first"])
    assert read(backend, 0, 5, commit) == b"first"
    backend.delete([commit])
    backend.create(commit, [b"other"])  # a store that was restored from a backup goes on so
    assert read(backend, 0, 5, commit) == b"other"
    assert bytes(backend.get_ranges(KEY).whole) == inner.objects[KEY][0]
    backend.put("a", [b"1"])
    backend.replace_if("a", [b"2"], backend.get_ranges("a").tag)
    assert [info.key for info in backend.list_after("")] == ["a", KEY, commit]
    assert backend.name == "memory"
    assert files(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        read(backend, 0, 1, "data/gone")


def damages(data: bytes, other: bytes) -> Iterator[bytes]:
    for at in (0, 8, 12, 16, len(data) // 2, len(data) - 1):
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    for size in (0, 5, 16, 17, len(data) - 1):
        yield data[:size]
    yield b"\0" * len(data)
    yield other


def test_a_damaged_file_is_never_served_but_dropped_and_fetched(
    inner: Counting, tmp_path: Path
) -> None:
    whole = inner.objects[KEY][0]
    backend = CachedBackend(inner, cache_in(tmp_path))
    read(backend, 0, 2 * BLOCK_BYTES)
    file, neighbour = files(tmp_path)
    sound, position = file.read_bytes(), int(file.stem.rpartition("-")[2]) * BLOCK_BYTES
    for damaged in damages(sound, neighbour.read_bytes()):
        file.write_bytes(damaged)
        inner.asked.clear()
        assert read(backend, position, 100) == whole[position : position + 100]
        assert len(inner.asked) == 1
        assert file.read_bytes() == sound
    file.write_bytes(sound + b"more")
    assert read(backend, position, 100) == whole[position : position + 100]
    assert backend.cache.get(KEY, 7) is None
    file.write_bytes(sound[:50])
    assert backend.cache.get(KEY, position // BLOCK_BYTES) is None
    assert not file.exists()


def test_the_limit_holds_at_every_moment_and_the_oldest_go_first(tmp_path: Path) -> None:
    inner, limit = MemoryBackend(), 33 << 20
    backend = CachedBackend(inner, cache_in(tmp_path, limit))
    keys = [f"data/2026010100/job/{number}.frames" for number in range(60)]
    for number, key in enumerate(keys):
        # Small objects take a page each, and large ones many blocks.
        inner.put(key, [contents(100 if number % 3 else 2 * BLOCK_BYTES + 5, number)])
        size = len(inner.objects[key][0])
        assert read(backend, 0, size, key) == inner.objects[key][0]
        used = sum(-(-path.stat().st_size // 4096) * 4096 for path in files(tmp_path))
        assert used <= limit
    assert used > limit // 2
    assert backend.cache.get(keys[-1], 0) is not None
    assert backend.cache.get(keys[0], 0) is None


def test_a_smaller_limit_removes_what_it_does_not_use_and_nothing_of_others(
    tmp_path: Path,
) -> None:
    inner = MemoryBackend()
    large = CachedBackend(inner, cache_in(tmp_path, 256 * LIMIT))
    for number in range(20):
        key = f"data/2026010100/job/{number}.frames"
        inner.put(key, [contents(10, number)])
        read(large, 0, 10, key)
    assert len({path.parent for path in files(tmp_path)}) > 5
    mine = tmp_path / "cursus-ranges" / "notes.txt"
    other = tmp_path / "cursus-ranges" / "00" / "notes.txt"
    for path in (mine, other):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    small = CachedBackend(inner, cache_in(tmp_path))
    kept = {path.parent.name for path in files(tmp_path) if path.suffix == SUFFIX}
    assert kept <= {"00"}
    inner.put(KEY, [contents(40 * BLOCK_BYTES)])
    assert read(small, 0, 40 * BLOCK_BYTES) == inner.objects[KEY][0]
    assert mine.exists()
    assert other.exists()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_directory_that_fails_costs_requests_and_nothing_else(
    error: int, inner: Counting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = inner.objects[KEY][0]
    for kind in ("open:read", "open:create", "pread", "pwritev", "mkdir", "rename", "unlink"):
        vfs = FaultyVfs(PosixVfs(tmp_path / kind), faults=[Fault(kind, error, times=1000)])
        (tmp_path / kind).mkdir()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            backend = CachedBackend(inner, cache_in(vfs))
            for _ in range(2):
                assert read(backend, 5, 2 * BLOCK_BYTES) == whole[5 : 5 + 2 * BLOCK_BYTES]
            if kind == "unlink":
                files(tmp_path / kind)[0].write_bytes(b"damaged")
                assert read(backend, 5, 2 * BLOCK_BYTES) == whole[5 : 5 + 2 * BLOCK_BYTES]
        assert sum("cannot be used" in line for line in caplog.messages) == 1, kind
        assert not list((tmp_path / kind).rglob("*.tmp"))


def test_a_crash_between_any_two_calls_leaves_nothing_harmful(
    inner: Counting, tmp_path: Path
) -> None:
    whole = inner.objects[KEY][0]
    for changes in range(100):
        place = tmp_path / str(changes)
        place.mkdir()
        crashing = FaultyVfs(PosixVfs(place), crash_after=changes, short_writes=300_000)
        try:
            read(CachedBackend(inner, cache_in(crashing)), 0, 2 * BLOCK_BYTES)
        except CrashError:
            ended = False
        else:
            ended = True
        backend = CachedBackend(inner, cache_in(place))
        assert read(backend, 0, len(whole)) == whole
        assert read(backend, 0, len(whole)) == whole
        if ended:
            break
    assert 10 < changes < 100
    # What a crash left is room that the next blocks take.
    small = tmp_path / "full"
    backend = CachedBackend(inner, cache_in(small))
    small.mkdir()
    (directory,) = {path.parent for path in files(tmp_path / "0")}
    leftover = small / directory.relative_to(tmp_path / "0") / f"{'0' * 8}-{'0' * 27}.tmp"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"x" * (LIMIT - BLOCK_BYTES))
    assert read(backend, 0, len(whole)) == whole
    assert not leftover.exists()


def test_processes_share_a_directory(tmp_path: Path) -> None:
    context, place = multiprocessing.get_context("spawn"), tmp_path / "shared"
    running = [
        context.Process(target=read_at_random, args=(place, LIMIT, SEED + number))
        for number in range(2)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(120)
    assert [process.exitcode for process in running] == [0, 0]
    assert sum(path.stat().st_size for path in files(place)) <= LIMIT + 2 * BLOCK_BYTES
    assert not list(place.rglob("*.tmp"))


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(cache_bytes=LIMIT, cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with records in a data object, and some in a commit."""
    with Store.open(tmp_path / "log", layout="objects", create=True) as store:
        store.create_topic(TOPIC)
        stage = store.stage("job")
        stage.write(TOPIC, 0, columns_of([b"%d" % each * 100 for each in range(1000)]))
        store.commit("job", stage.finish())
        store.append(TOPIC, 0, [b"last"])
    return tmp_path / "log"


def asked_of_data(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked, get_ranges = list[str](), VfsBackend.get_ranges

    def counting(self: VfsBackend, key: str, ranges: Sequence[tuple[int, int]] | None = None):  # type: ignore[no-untyped-def]
        if key.startswith("data/"):
            asked.append(key)
        return get_ranges(self, key, ranges)

    monkeypatch.setattr(VfsBackend, "get_ranges", counting)
    return asked


def test_a_store_with_a_cache_reads_each_range_once(
    path: Path, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of_data(monkeypatch)
    for _ in range(3):
        with Store.open(path, config=config) as store:
            assert len(values(store)) == 1001
    assert len(asked) == 1


def test_a_spark_task_reads_from_the_cache(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of_data(monkeypatch)
    cache = {"cacheDir": str(tmp_path / "cache"), "cacheBytes": "16m"}
    raw = {"path": str(path), "subscribe": TOPIC, **cache}
    options, schema = parse_read_options(raw), CursusDataSource(raw).schema()
    with Store.open(path) as store:
        tasks = planning.plan_batch(store, options)
    for _ in range(2):
        assert sum(len(batch) for task in tasks for batch in read_slice(options, schema, task)) == (
            1001
        )
    assert len(asked) == 1
    with pytest.raises(Exception, match="'cacheDir' must be the absolute path"):
        parse_read_options({**raw, "cacheDir": "cache"})


def test_bytes_that_were_damaged_on_their_way_are_not_kept(
    path: Path, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_ranges = VfsBackend.get_ranges

    def damaging(self: VfsBackend, key: str, ranges: Sequence[tuple[int, int]] | None = None):  # type: ignore[no-untyped-def]
        found = get_ranges(self, key, ranges)
        if not key.startswith("data/"):
            return found
        data = bytearray(found.pieces[0])
        data[5000] ^= 1
        return Contents((memoryview(bytes(data)),))

    with Store.open(path, config=config) as store:
        with monkeypatch.context() as patched:
            patched.setattr(VfsBackend, "get_ranges", damaging)
            with pytest.raises(DamagedLogError):
                values(store)
        assert len(values(store)) == 1001


def test_checks_read_the_store_and_not_the_cache(path: Path, config: StoreConfig) -> None:
    (data,) = (path / "data").rglob("*.frames")
    with Store.open(path, config=config) as store:
        assert len(values(store)) == 1001
        assert errors(store) == []
        data.chmod(0o644)
        damaged = bytearray(data.read_bytes())
        damaged[5000] ^= 1
        data.write_bytes(damaged)
        assert len(values(store)) == 1001
        assert len(errors(store)) == 1
        (report,) = store.scrub(TOPIC)
        assert report.problems


def test_settings_that_make_no_cache_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cache_bytes"):
        StoreConfig(cache_bytes=5, cache_dir=str(tmp_path))
    with pytest.raises(ConfigError, match="cache_dir"):
        StoreConfig(cache_bytes=LIMIT, cache_dir=" ")
