"""``check`` beside writers and on directories that lie: it ends, and says what it saw."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.support.faulty_vfs import faulty
from tests.support.stores import TOPIC, make_store, on, reopen, segment


@pytest.mark.timeout(60)
def test_a_file_that_is_listed_but_never_there_is_reported(tmp_path: Path) -> None:
    with make_store(tmp_path, segment_bytes=4096) as store:
        for _ in range(3):
            store.append(TOPIC, 0, [b"x" * 3000])
    vfs = faulty(tmp_path)
    vfs.fail("open:read", errno.ENOENT, times=1 << 60, path=segment(tmp_path, 1).name)
    [problem] = on(vfs).check()
    assert (problem.severity, problem.code) == ("error", "LOG_DAMAGED")
    assert problem.path == str(segment(Path(), 1))


def test_merges_beside_a_check_do_not_make_it_begin_again(tmp_path: Path) -> None:
    store = make_store(tmp_path, segment_bytes=8192)
    for _ in range(10):
        store.append(TOPIC, 0, [b"x" * 7000])
    writer, vfs = reopen(tmp_path), faulty(tmp_path)
    looks = rounds = 0

    def small_segments() -> None:
        for _ in range(4):
            writer.append(TOPIC, 0, [b"y"])
            writer.roll(TOPIC, 0)

    def merge_meanwhile(kind: str, path: str) -> None:
        nonlocal looks, rounds
        looks += (kind, path) == ("listdir", str(segment(Path()).parent))
        if kind == "stat" and path.endswith(segment(tmp_path, 7).name) and rounds < 25:
            rounds += 1
            small_segments()
            writer.merge(TOPIC)

    small_segments()
    vfs.hook = merge_meanwhile
    assert on(vfs).check() == []
    assert 0 < rounds < 25
    assert looks <= 3
