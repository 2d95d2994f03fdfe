"""What the file backend does better on Linux, and the portable way of doing the same."""

from __future__ import annotations

import errno
import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import ConfigError
from storage_core.io.durable import write_all
from storage_core.vfs import OpenMode, PosixVfs
from storage_core.vfs.linux import Linux
from storage_core.vfs.portable import Portable

SYSTEMS = [Portable, Linux] if sys.platform.startswith("linux") else [Portable]
Through = str


@pytest.fixture(params=SYSTEMS)
def vfs(request: pytest.FixtureRequest, tmp_path: Path) -> PosixVfs:
    return PosixVfs(tmp_path, request.param())


def received(send: Callable[[socket.socket], int]) -> tuple[int, bytes]:
    """What ``send`` says it sent, and what came out at the other end."""
    ours, theirs = socket.socketpair()
    parts: list[bytes] = []

    def drain() -> None:
        while part := theirs.recv(1 << 16):
            parts.append(part)

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        sent = send(ours)
    finally:
        ours.close()
        reader.join()
        theirs.close()
    return sent, b"".join(parts)


@pytest.mark.parametrize(("position", "size"), [(0, 0), (0, 1), (7, 700_000), (999_999, 1)])
def test_a_range_of_a_file_goes_over_a_socket(vfs: PosixVfs, position: int, size: int) -> None:
    data = os.urandom(1_000_000)
    Path(vfs.root, "f").write_bytes(data)
    fd = vfs.open("f", "read")
    found = received(lambda sock: vfs.send(fd, sock, position, size))
    vfs.close(fd)
    assert found == (size, data[position : position + size])


def test_sending_stops_at_the_end_of_the_file(vfs: PosixVfs) -> None:
    Path(vfs.root, "f").write_bytes(b"short")
    fd = vfs.open("f", "read")
    assert received(lambda sock: vfs.send(fd, sock, 2, 1000)) == (3, b"ort")
    vfs.close(fd)


def test_sending_to_a_closed_connection_is_an_error(vfs: PosixVfs) -> None:
    Path(vfs.root, "f").write_bytes(bytes(1 << 20))
    fd = vfs.open("f", "read")
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(OSError, match=r"[Bb]roken pipe|reset"):
        vfs.send(fd, ours, 0, 1 << 20)
    vfs.close(fd)


def test_hints_change_nothing(vfs: PosixVfs) -> None:
    data = os.urandom(3 << 20)
    fd = vfs.open("f", "create")
    write_all(vfs, fd, [data], 0)
    vfs.begin_writeback(fd, 0, len(data))
    assert vfs.pread(fd, 2 << 20, 5) == data[5 : 5 + (2 << 20)]
    assert bytes(vfs.map(fd)) == data
    vfs.close(fd)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="only where there are hints")
def test_maps_and_scans_tell_linux_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *hint: hints.append(hint))
    (tmp_path / "f").write_bytes(bytes(4 << 20))
    for system, expected in ((Portable(), False), (Linux(), True)):
        vfs = PosixVfs(tmp_path, system)
        fd = vfs.open("f", "read")
        vfs.pread(fd, 100, 0)
        assert hints == []
        vfs.pread(fd, 1 << 20, 0)
        vfs.map(fd)
        vfs.close(fd)
        assert bool(hints) == expected
    assert hints == [
        (0, 0, os.POSIX_FADV_SEQUENTIAL),
        (1 << 20, 1 << 20, os.POSIX_FADV_WILLNEED),
        (0, 0, os.POSIX_FADV_SEQUENTIAL),
        (0, 1 << 20, os.POSIX_FADV_WILLNEED),
    ]


@pytest.mark.parametrize("through", ["dsync", "direct"])
def test_ragged_writes_arrive_however_the_file_was_opened(vfs: PosixVfs, through: str) -> None:
    expected = b""
    create, write = cast(OpenMode, f"create+{through}"), cast(OpenMode, f"write+{through}")
    try:
        fd = vfs.open("f", create)
    except ConfigError:
        pytest.skip("this file system does not know it")
    for turn, size in enumerate([1, 4095, 4096, 100, 20_000, 3 * 4096 - 4, 12_288, 7]):
        if turn == 4:
            vfs.close(fd)
            fd = vfs.open("f", write)
        pieces = [os.urandom(size // 3), os.urandom(size - size // 3)]
        end = write_all(vfs, fd, pieces, len(expected))
        expected += b"".join(pieces)
        assert end == len(expected)
        assert vfs.pread(fd, 99, max(0, end - 50)) == expected[max(0, end - 50) :]
    vfs.fsync(fd)
    vfs.close(fd)
    assert Path(vfs.root, "f").read_bytes() == expected


@pytest.mark.parametrize("through", ["none", "dsync", "direct"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_log_is_the_same_however_it_is_written(
    tmp_path: Path, system: type[Portable], through: Any
) -> None:
    config = StoreConfig(write_through=through, segment_bytes=20_000, index_interval_bytes=0)
    Store.open(tmp_path / "s", create=True).close()
    values = [os.urandom(size * 1237 % 9000) for size in range(60)]
    try:
        for first in range(0, 60, 20):
            with Store(PosixVfs(tmp_path / "s", system()), config) as store:
                store.create_topic("t", exist_ok=True)
                for value in values[first : first + 20]:
                    store.append("t", 0, [value])
    except ConfigError:
        pytest.skip("this file system does not know it")
    with Store.open(tmp_path / "s") as store:
        read = [row for batch in store.read("t", 0) for row in batch.column("value").to_pylist()]
        assert read == values
        assert store.check() == []
        assert len(store.segments("t", 0)) > 3


def test_a_file_system_that_cannot_write_through_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Portable):
        def open_flags(self, mode: OpenMode) -> int:
            return os.O_DSYNC if "+" in mode else 0

    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_DSYNC == os.O_DSYNC:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match=r"does not support write_through=dsync\. Set"):
        PosixVfs(tmp_path, Refusing()).open("f", "create+dsync")


def test_other_invalid_arguments_stay_what_they_are(vfs: PosixVfs) -> None:
    fd = vfs.open("f", "create")
    with pytest.raises(OSError, match="Invalid argument"):
        vfs.pread(fd, 1, -1)
    with pytest.raises(OSError, match="Invalid argument"):
        vfs.pwritev(fd, [b"x"], -2)
    vfs.close(fd)


def test_a_backend_keeps_its_system_when_pickled(vfs: PosixVfs) -> None:
    copy = pickle.loads(pickle.dumps(vfs))
    assert type(copy._system) is type(vfs._system)
    assert copy.root == vfs.root
