"""Futures of single records: cheap to make, and still futures to everything that takes one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, as_completed, wait

import pytest

from storage_core.errors import WriteFailedError
from storage_core.handlers.futures import Batch, PendingOffset


class Owner:
    """Counts how often a caller was in a hurry."""

    def __init__(self, rows: int = 3) -> None:
        self.hurried = 0
        self.batch = Batch(0.0, self.hurry)
        self.batch.values = [b"x"] * rows
        self.futures = [PendingOffset(self.batch, index) for index in range(rows)]

    def hurry(self, batch: Batch) -> None:
        assert batch is self.batch
        self.hurried += 1

    def finish(self, first: int = 10) -> None:
        self.batch.succeed(range(first, first + len(self.futures)))
        self.batch.announce()

    def finish_soon(self) -> threading.Timer:
        timer = threading.Timer(0.02, self.finish)
        timer.start()
        return timer


def test_a_future_gives_the_offset_of_its_record() -> None:
    owner = Owner()
    assert not any(future.done() for future in owner.futures)
    assert all(future.running() for future in owner.futures)
    owner.finish()
    assert [future.result() for future in owner.futures] == [10, 11, 12]
    assert all(future.done() and future.exception() is None for future in owner.futures)
    assert owner.hurried == 0


def test_offsets_need_not_be_contiguous() -> None:
    owner = Owner()
    owner.batch.succeed([4, 9, 10])
    owner.batch.announce()
    assert [future.result() for future in owner.futures] == [4, 9, 10]


def test_it_is_a_future_without_its_lock_until_a_caller_needs_it() -> None:
    owner = Owner()
    future = owner.futures[0]
    assert isinstance(future, Future)
    assert "_condition" not in vars(future)
    owner.finish()
    future.result()
    assert "_condition" not in vars(future)


def test_result_waits_and_asks_for_the_write() -> None:
    owner = Owner()
    timer = owner.finish_soon()
    assert owner.futures[1].result(timeout=10) == 11
    assert owner.hurried == 1
    timer.join()


def test_result_and_exception_time_out() -> None:
    owner = Owner()
    with pytest.raises(TimeoutError):
        owner.futures[0].result(timeout=0.01)
    with pytest.raises(TimeoutError):
        owner.futures[0].exception(timeout=0)


def test_all_futures_of_a_failed_batch_raise_its_error_with_a_short_trace() -> None:
    owner = Owner()
    error = WriteFailedError("disk gone")
    owner.batch.fail(error)
    owner.batch.announce()
    lengths = []
    for future in owner.futures:
        assert future.exception() is error
        with pytest.raises(WriteFailedError, match="disk gone") as caught:
            future.result()
        lengths.append(len(caught.traceback))
    assert len(set(lengths)) == 1


def test_a_batch_announced_without_a_fate_fails() -> None:
    owner = Owner()
    owner.batch.announce()
    with pytest.raises(WriteFailedError, match="interrupted"):
        owner.futures[0].result()


def test_callbacks_run_once_before_and_after_the_end_and_do_not_hurry() -> None:
    owner = Owner()
    seen: list[int] = []
    owner.futures[0].add_done_callback(lambda future: seen.append(future.result()))
    assert owner.hurried == 0
    owner.finish()
    owner.futures[1].add_done_callback(lambda future: seen.append(future.result()))
    owner.futures[0].add_done_callback(lambda future: seen.append(future.result()))
    assert seen == [10, 11, 10]


def test_a_callback_sees_the_error() -> None:
    owner = Owner()
    seen: list[BaseException | None] = []
    owner.futures[0].add_done_callback(lambda future: seen.append(future.exception()))
    error = WriteFailedError("no")
    owner.batch.fail(error)
    owner.batch.announce()
    assert seen == [error]


def test_it_cannot_be_cancelled() -> None:
    owner = Owner()
    assert not owner.futures[0].cancel()
    assert not owner.futures[0].cancelled()
    owner.finish()
    assert owner.futures[0].result() == 10


@pytest.mark.parametrize("finished_before", [True, False])
def test_wait_takes_them(finished_before: bool) -> None:
    owner = Owner()
    timer = owner.finish_soon()
    if finished_before:
        timer.join()
    done, pending = wait(owner.futures, timeout=10, return_when=ALL_COMPLETED)
    assert (done, pending) == (set(owner.futures), set())
    assert bool(owner.hurried) != finished_before or finished_before
    timer.join()


def test_wait_for_the_first_of_several_batches() -> None:
    slow, quick = Owner(), Owner()
    timer = quick.finish_soon()
    done, pending = wait([*slow.futures, *quick.futures], 10, return_when=FIRST_COMPLETED)
    assert done <= set(quick.futures)
    assert done
    assert set(slow.futures) <= pending
    timer.join()


def test_as_completed_takes_them() -> None:
    owner = Owner()
    timer = owner.finish_soon()
    found = [future.result() for future in as_completed(owner.futures, timeout=10)]
    assert sorted(found) == [10, 11, 12]
    assert owner.hurried
    timer.join()


def test_asyncio_takes_them() -> None:
    owner = Owner()

    async def gather() -> list[int]:
        timer = owner.finish_soon()
        found = await asyncio.gather(*map(asyncio.wrap_future, owner.futures))
        timer.join()
        return list(found)

    assert asyncio.run(gather()) == [10, 11, 12]


def test_many_threads_may_make_it_whole_while_it_ends() -> None:
    for _ in range(50):
        owner = Owner(rows=1)
        seen: list[int] = []
        start = threading.Barrier(5)

        def watch(
            owner: Owner = owner, seen: list[int] = seen, start: threading.Barrier = start
        ) -> None:
            start.wait()
            owner.futures[0].add_done_callback(lambda future: seen.append(future.result()))

        threads = [threading.Thread(target=watch) for _ in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        owner.finish()
        for thread in threads:
            thread.join()
        assert seen == [10] * 4


def test_a_kept_future_does_not_keep_the_records() -> None:
    owner = Owner()
    owner.finish()
    assert owner.batch.values == []


def test_unknown_attributes_are_unknown_and_it_can_be_printed() -> None:
    future = Owner().futures[0]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = future.nonsense
    assert "pending" in repr(future)
    assert "_condition" not in vars(future)
