"""Pieces of work shared with a helper thread: order, errors, forks, and a helper that is late."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage_core.io import parallel as module
from storage_core.io.parallel import map_on_processors, map_on_threads, use_processors

LARGE = 1 << 20


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_processors", 2)


def test_results_come_in_the_order_of_the_pieces() -> None:
    for count in (0, 1, 2, 33, 1000):
        assert map_on_processors(lambda n: n * n, range(count), LARGE) == [
            n * n for n in range(count)
        ]


def test_the_helper_takes_part() -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(piece: int) -> tuple[int, str]:
        both.wait()
        return piece, threading.current_thread().name

    (one, first), (two, second) = map_on_processors(meet, [1, 2], LARGE)
    assert (one, two) == (1, 2)
    assert first != second


def test_a_helper_that_is_busy_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    with ThreadPoolExecutor(1) as helper:
        monkeypatch.setattr(module, "_helper", lambda _: helper)
        busy = helper.submit(free.wait, 30)
        try:
            names = map_on_processors(lambda _: threading.current_thread().name, range(8), LARGE)
        finally:
            free.set()
        assert busy.result()
    assert set(names) == {threading.current_thread().name}


def test_what_a_piece_raises_reaches_the_caller_and_ends_the_rest() -> None:
    begun = []

    def fail(piece: int) -> None:
        begun.append(piece)
        raise IndexError(f"piece {piece}")

    with pytest.raises(IndexError, match="piece"):
        map_on_processors(fail, range(100), LARGE)
    assert len(begun) <= 2


def test_one_processor_does_it_all() -> None:
    use_processors(1)
    names = map_on_processors(lambda _: threading.current_thread().name, range(8), LARGE)
    assert set(names) == {threading.current_thread().name}


def test_little_work_is_not_worth_a_helper() -> None:
    names = map_on_processors(lambda _: threading.current_thread().name, range(8), LARGE - 1)
    assert set(names) == {threading.current_thread().name}


def test_without_a_helper_the_caller_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = ThreadPoolExecutor(1)
    helper.shutdown()
    monkeypatch.setattr(module, "_helper", lambda _: helper)
    assert map_on_processors(lambda n: n * n, range(33), LARGE) == [n * n for n in range(33)]


@pytest.mark.parametrize("count", [0, 1, 2, 4, 40])
def test_waits_are_shared_and_each_piece_is_done_once(count: int) -> None:
    done: list[int] = []
    map_on_threads(done.append, range(count), 4)
    assert sorted(done) == list(range(count))


def test_waits_take_as_many_threads_at_once() -> None:
    all_of_them = threading.Barrier(4, timeout=30)
    places: list[int] = []
    map_on_threads(lambda _: places.append(all_of_them.wait()), range(4), 4)
    assert sorted(places) == [0, 1, 2, 3]


def _squares_in_a_child(answers: multiprocessing.Queue[list[int]]) -> None:
    answers.put(map_on_processors(lambda n: n * n, range(50), LARGE))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_helper_of_its_own() -> None:
    map_on_processors(lambda n: n, range(50), LARGE)
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[list[int]] = context.Queue()
    child = context.Process(target=_squares_in_a_child, args=(answers,))
    child.start()
    assert answers.get(timeout=30) == [n * n for n in range(50)]
    child.join(30)
    assert child.exitcode == 0
