"""Decoding ahead: the same results and errors in the same order, and nothing for who wants one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.ahead import decoded_ahead
from storage_core.errors import DamagedLogError
from tests.stores import TOPIC, overwrite, segment


def test_results_come_in_order_whoever_makes_them() -> None:
    seen: list[str] = []

    def double(item: int) -> int:
        seen.append(threading.current_thread().name)
        return 2 * item

    found = decoded_ahead(iter(range(40)), double, lambda item: item % 5 != 3)
    assert list(found) == [2 * item for item in range(40)]
    assert any(name.startswith("cursus-decode") for name in seen)
    assert threading.current_thread().name in seen


def test_who_wants_one_pays_for_one() -> None:
    made: list[int] = []

    def note(item: int) -> int:
        made.append(item)
        return item

    assert next(decoded_ahead(iter(range(9)), note, lambda _: True)) == 0
    assert made == [0]


@pytest.mark.parametrize("broken", range(7))
def test_an_error_comes_behind_all_before_it(broken: int) -> None:
    def items() -> Iterator[int]:
        yield from range(6)
        raise ValueError(6)

    def decode(item: int) -> int:
        if item == broken:
            raise ValueError(item)
        return item

    found: list[int] = []
    with pytest.raises(ValueError, match=str(broken)):
        found.extend(decoded_ahead(items(), decode, lambda _: True))
    assert found == list(range(broken))


def test_a_forked_process_has_threads_of_its_own() -> None:
    assert sum(decoded_ahead(iter(range(9)), int, lambda _: True)) == 36
    child = os.fork()
    if child == 0:
        os._exit(sum(decoded_ahead(iter(range(9)), int, lambda _: True)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 36


def collect(store: Store, found: list[int]) -> None:
    for batch in store.read(TOPIC, 0):
        found += batch.column("offset").to_pylist()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_damage_in_a_compressed_frame_comes_behind_all_sound_ones(
    tmp_path: Path, codec: str
) -> None:
    store = Store.open(tmp_path, create=True)
    store.create_topic(TOPIC, compression=codec, frame_records=100)
    store.append(TOPIC, 0, [b"%06d" % at * 400 for at in range(1000)])
    store.roll(TOPIC, 0)
    store.append(TOPIC, 0, [b"active"])
    size = segment(tmp_path).stat().st_size
    overwrite(segment(tmp_path), lambda data: data.__setitem__(size // 2, data[size // 2] ^ 1))
    found: list[int] = []
    with pytest.raises(DamagedLogError, match="fails its checksum") as caught:
        collect(Store.open(tmp_path), found)
    assert found == list(range(caught.value.offset or 0))
    assert 300 <= len(found) <= 600
