"""Handlers: records appended one by one, written in batches, in order, once."""

from __future__ import annotations

import datetime
import logging
import re
import threading
import time
from collections import Counter
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store, StoreConfig
from storage_core.errors import (
    InvalidRecordError,
    RecordTooLargeError,
    StoreClosedError,
    UnsupportedColumnError,
)
from storage_core.handlers.disk_handler import DiskHandler
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.handler_helpers import NEVER_MS, Gate, handler_on, new_handler, stored
from tests.support.processes import wait_until
from tests.support.stores import T0, make_store, names


def test_basic_append_and_flush(tmp_path: Path) -> None:
    with new_handler(tmp_path) as handler:
        futures = [handler.append(f"message-{number}".encode()) for number in range(25)]
        handler.flush()
        assert all(future.done() for future in futures)
        assert [future.result() for future in futures] == list(range(25))
        found = handler.read_messages(0, 100)
    assert found.next_offset == 25
    assert found.records.column("value").to_pylist() == [b"message-%d" % n for n in range(25)]
    assert stored(tmp_path) == [b"message-%d" % n for n in range(25)]


def test_channel_overflow_falls_back_to_a_synchronous_write_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vfs, gate = faulty(tmp_path), Gate("pwritev", ".log")
    handler = handler_on(
        vfs,
        disk_flush_batch_size=5,
        channel_buffer_size=5,
        disk_write_timeout_ms=40,
        linger_ms=NEVER_MS,
    )
    vfs.hook = gate
    futures = [handler.append(b"%d" % number) for number in range(5)]
    gate.wait_until_reached()
    # The writer is stuck with the first five; five more fill the queue.
    futures += [handler.append(b"%d" % number) for number in range(5, 10)]
    extra: list[Future[int]] = []
    late = threading.Thread(target=lambda: extra.append(handler.append(b"10")))
    with caplog.at_level(logging.WARNING, "storage_core"):
        late.start()
        wait_until(lambda: "writing synchronously" in caplog.text)
    assert not extra
    gate.open()
    late.join()
    assert extra[0].done()
    assert [future.result() for future in [*futures, *extra]] == list(range(11))
    handler.close()
    assert stored(tmp_path) == [b"%d" % number for number in range(11)]


def test_a_full_queue_warns_once_a_second_with_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    vfs, clock = faulty(tmp_path), [1000.0]
    monkeypatch.setattr(vfs, "monotonic", lambda: clock[0])
    with (
        handler_on(vfs, channel_buffer_size=1, disk_write_timeout_ms=0) as handler,
        caplog.at_level(logging.WARNING, "storage_core"),
    ):
        monkeypatch.setattr(handler, "_wait_for_room", lambda: False)
        for number in range(25):  # four of them a second
            handler.append(b"%d" % number, key=b"k")
            clock[0] += 0.25
    written = [re.findall(r"\((\d+) records", record.getMessage()) for record in caplog.records]
    assert written == [["1"], *[["4"]] * 6]
    assert stored(tmp_path) == [b"%d" % number for number in range(25)]


def test_rotation(tmp_path: Path) -> None:
    with new_handler(tmp_path, segment_bytes=4096) as handler:
        assert handler.segment_size == 4096
        assert (handler.current_segment, handler.current_offset) == (0, 0)
        for number in range(40):
            handler.append(b"%d" % number + b"x" * 500)
            if number % 4 == 3:
                handler.flush()
        files = names(tmp_path, ".log")
        assert len(files) > 3
        assert files[-1] == f"{handler.current_segment:020}.log"
        size = (tmp_path / handler.base_name / files[-1]).stat().st_size
        assert size == handler.current_offset
    assert len(stored(tmp_path)) == 40


def test_rotating_by_hand_writes_what_is_queued_first(tmp_path: Path) -> None:
    with new_handler(tmp_path, linger_ms=NEVER_MS) as handler:
        future = handler.append(b"before")
        handler.rotate_segment()
        assert future.done()
        assert handler.state == "active"
        assert (handler.current_segment, handler.current_offset) == (1, 0)
        assert handler.write_direct(b"after") == 1
        assert handler.current_segment == 1
        assert handler.current_offset > 0
    assert stored(tmp_path) == [b"before", b"after"]


def test_states_can_be_seen(tmp_path: Path) -> None:
    class Watched(DiskHandler):
        made: Any = None

        def __new__(cls, *_: Any) -> Watched:
            cls.made = super().__new__(cls)
            return cls.made  # type: ignore[no-any-return]

    seen: Counter[str] = Counter()
    make_store(tmp_path).close()
    vfs = faulty(tmp_path)
    vfs.hook = lambda *_: seen.update([Watched.made.state] if Watched.made else [])
    handler = Watched(Store(vfs, StoreConfig()), "t", 0)
    handler.write_direct(b"x")
    handler.rotate_segment()
    handler.close()
    assert set(seen) == {"creating", "active", "rotating"}
    assert handler.state == "closed"


def test_eight_threads_keep_their_order_without_loss_or_duplicate(tmp_path: Path) -> None:
    futures: dict[int, list[Future[int]]] = {}

    def produce(name: int) -> None:
        futures[name] = [handler.append(b"%d:%d" % (name, number)) for number in range(10_000)]

    with new_handler(tmp_path) as handler:
        threads = [threading.Thread(target=produce, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [value.split(b":") for value in stored(tmp_path)]
    assert len(found) == 80_000
    for name in range(8):
        mine = [int(number) for who, number in found if int(who) == name]
        assert mine == list(range(10_000))
        offsets = [future.result() for future in futures[name]]
        assert offsets == sorted(offsets)
        assert found[offsets[77]] == [b"%d" % name, b"77"]


def test_closing_during_appends_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    accepted: list[tuple[bytes, Future[int]]] = []
    handler = new_handler(tmp_path, channel_buffer_size=200, linger_ms=5)

    def produce(name: int) -> None:
        for number in range(10**9):
            value = b"%d:%d" % (name, number)
            try:
                future = handler.append(value)
            except StoreClosedError:
                return
            accepted.append((value, future))

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    handler.close()
    for thread in threads:
        thread.join()
    values = stored(tmp_path)
    assert len(values) == len(accepted) > 0
    assert all(values[future.result(timeout=0)] == value for value, future in accepted)


def test_a_full_batch_is_written_without_waiting_for_the_linger(tmp_path: Path) -> None:
    with new_handler(tmp_path, disk_flush_batch_size=10, linger_ms=NEVER_MS) as handler:
        futures = [handler.append(b"x") for _ in range(10)]
        wait_until(lambda: all(future.done() for future in futures))
        assert [future.result(timeout=0) for future in futures] == list(range(10))


def test_a_small_batch_is_written_after_the_linger(tmp_path: Path) -> None:
    with new_handler(tmp_path, linger_ms=150) as handler:
        begin, done = time.monotonic(), threading.Event()
        handler.append(b"x").add_done_callback(lambda _: done.set())
        assert done.wait(10)
        assert time.monotonic() - begin >= 0.14


def test_waiting_for_a_result_cuts_the_linger_short(tmp_path: Path) -> None:
    with new_handler(tmp_path, linger_ms=NEVER_MS) as handler:
        assert [handler.append(b"x").result(timeout=30) for _ in range(5)] == list(range(5))
        futures = [handler.append(b"y") for _ in range(5)]
        assert len(wait(futures, timeout=30).done) == 5


def test_a_callback_may_append_and_wait(tmp_path: Path) -> None:
    with new_handler(tmp_path) as handler:
        found: list[int] = []
        handler.append(b"a").add_done_callback(
            lambda _: found.append(handler.append(b"b").result(timeout=30))
        )
        wait_until(lambda: bool(found))
        assert found == [1]


def test_write_direct_is_durable_on_return_and_goes_after_what_is_queued(tmp_path: Path) -> None:
    with new_handler(tmp_path, linger_ms=NEVER_MS) as handler:
        queued = handler.append(b"first")
        assert handler.write_direct(b"second", b"key") == 1
        assert queued.done()
        assert stored(tmp_path) == [b"first", b"second"]


def test_everything_of_a_record_is_kept(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    with new_handler(tmp_path, linger_ms=NEVER_MS) as handler:
        handler.append("grüße", key="schlüssel")
        handler.append(bytearray(b"b"), headers={"h": b"1", "none": None})
        handler.append(memoryview(b"c"), timestamp=T0)
        handler.append(None, b"k", headers=[("a", "ä"), ("a", b"")], timestamp=moment)
        handler.append(b"plain")
        handler.flush()
        rows = handler.read_messages(0, 10).records.to_pylist()
    assert [row["value"] for row in rows] == ["grüße".encode(), b"b", b"c", None, b"plain"]
    assert [row["key"] for row in rows] == ["schlüssel".encode(), None, None, b"k", None]
    assert rows[1]["headers"] == [{"key": "h", "value": b"1"}, {"key": "none", "value": None}]
    pairs = [(header["key"], header["value"]) for header in rows[3]["headers"]]
    assert pairs == [("a", "ä".encode()), ("a", b"")]
    assert rows[2]["timestamp"].timestamp() * 1e6 == T0
    assert rows[3]["timestamp"] == moment


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ({"value": 5}, InvalidRecordError, "value must be bytes, text or None, got int"),
        ({"value": "\ud800"}, InvalidRecordError, "cannot be encoded as UTF-8"),
        ({"value": b"", "key": []}, InvalidRecordError, "key must be bytes"),
        ({"value": b"", "headers": {1: b""}}, InvalidRecordError, "name must be text"),
        ({"value": b"", "headers": 7}, InvalidRecordError, "headers must be a mapping"),
        ({"value": b"", "timestamp": "now"}, InvalidRecordError, "timestamps must be"),
        ({"value": b"", "timestamp": 1 << 62}, InvalidRecordError, "years 1 to 9999"),
        ({"value": bytes(101)}, RecordTooLargeError, "has 101 bytes, more than"),
        ({"value": bytes(50), "key": bytes(51)}, RecordTooLargeError, "has 101 bytes"),
    ],
)
def test_a_bad_record_is_refused_alone(
    tmp_path: Path, record: dict[str, Any], error: type[Exception], message: str
) -> None:
    with new_handler(tmp_path, topic_settings={"max_record_bytes": 100}) as handler:
        good = handler.append(b"good")
        with pytest.raises(error, match=message):
            handler.append(**record)
        with pytest.raises(error, match=message):
            handler.write_direct(**record)
        assert good.result() == 0
        assert handler.append(bytes(100)).result() == 1


def test_a_column_the_layout_cannot_store_is_refused_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path, layout="cursus", create=True) as store:
        store.create_topic("t")
        with DiskHandler(store, "t", 0) as handler:
            good = handler.append(b"good")
            with pytest.raises(UnsupportedColumnError, match="key"):
                handler.append(b"bad", b"key")
            assert good.result() == 0


@pytest.mark.parametrize("layout", ["native", "cursus", "cursus-broker", "rustlog"])
def test_a_handler_works_on_every_layout(tmp_path: Path, layout: str) -> None:
    with Store.open(tmp_path, layout=layout, create=True) as store:
        store.create_topic("t")
        with DiskHandler(store, "t", 0) as handler:
            assert [handler.append(b"%d" % n).result() for n in range(3)] == [0, 1, 2]
            assert handler.read_messages(1, 1).next_offset == 2
            assert handler.current_offset > 0
            assert handler.base_name.startswith(str(tmp_path))
            handler.rotate_segment()
            assert handler.write_direct(b"3") == 3
        with DiskHandler(store, "t", 0) as handler:
            assert handler.write_direct(b"4") == 4
    with Store.open(tmp_path) as store:
        read = [v for batch in store.read("t", 0) for v in batch.column("value").to_pylist()]
    assert read == [b"0", b"1", b"2", b"3", b"4"]


def test_closing_twice_and_from_several_threads_is_fine(tmp_path: Path) -> None:
    handler = new_handler(tmp_path, linger_ms=NEVER_MS)
    futures = [handler.append(b"x") for _ in range(100)]
    threads = [threading.Thread(target=handler.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    assert [future.result() for future in futures] == list(range(100))
    for use in (handler.append, handler.write_direct):
        with pytest.raises(StoreClosedError):
            use(b"late")
    with pytest.raises(StoreClosedError):
        handler.read_messages(0, 1)


def test_more_than_one_column_can_hold_is_written_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage_core.handlers.batch_writer._PIECE_BYTES", 1000)
    with new_handler(tmp_path, linger_ms=NEVER_MS) as handler:
        futures = []
        for number in range(50):
            key = b"k%d" % number if number % 3 == 0 else None
            futures.append(handler.append(b"%d" % number * 100, key))
        handler.flush()
        rows = handler.read_messages(0, 100).records.to_pylist()
    assert [future.result() for future in futures] == list(range(50))
    assert [row["value"] for row in rows] == [b"%d" % number * 100 for number in range(50)]
    assert [row["key"] for row in rows if row["key"]] == [b"k%d" % n for n in range(0, 50, 3)]


def test_a_callback_may_close_the_handler(tmp_path: Path) -> None:
    handler = new_handler(tmp_path)
    handler.append(b"x").add_done_callback(lambda _: handler.close())
    wait_until(lambda: handler.state == "closed")
    handler.close()
    assert stored(tmp_path) == [b"x"]


def test_fsync_by_interval_resolves_futures_only_when_durable(tmp_path: Path) -> None:
    vfs = faulty(tmp_path)
    settings: dict[str, Any] = {"fsync": "interval", "fsync_interval_ms": 200}
    handler = handler_on(vfs, topic_settings=settings, linger_ms=0)
    handler.write_direct(b"first, synced at once")
    future = handler.append(b"x")
    wait_until(lambda: handler.current_offset > 300)
    synced = _log_syncs(vfs)
    assert not future.done()
    assert future.result(timeout=30) == 1
    assert _log_syncs(vfs) == synced + 1
    assert handler.write_direct(b"y") == 2
    handler.close()
    assert len(stored(tmp_path)) == 3


def _log_syncs(vfs: FaultyVfs) -> int:
    return sum(call.kind == "fsync" and call.path.endswith(".log") for call in vfs.calls)
