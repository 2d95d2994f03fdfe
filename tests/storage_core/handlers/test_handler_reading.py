"""Handlers' records read back, over a socket too, and what is not shown yet."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from storage_core.errors import OffsetOutOfRangeError
from tests.support.faulty_vfs import faulty
from tests.support.handler_helpers import NEVER_MS, Gate, handler_on, new_handler, stored


def test_reading_gives_what_there_is_and_where_to_go_on(tmp_path: Path) -> None:
    with new_handler(tmp_path, segment_bytes=4096) as handler:
        for number in range(30):
            handler.append(b"%03d" % number * 100)
        handler.flush()
        some = handler.read_messages(7, 5)
        assert some.records.column("offset").to_pylist() == [7, 8, 9, 10, 11]
        assert some.next_offset == 12
        assert handler.read_messages(7, 20, max_bytes=601).next_offset == 10
        assert handler.read_messages(28, 100).next_offset == 30
        empty = handler.read_messages(30, 100)
        assert (empty.records.num_rows, empty.next_offset) == (0, 30)
        with pytest.raises(OffsetOutOfRangeError):
            handler.read_messages(31, 1)


def test_the_current_segment_goes_over_a_socket(tmp_path: Path) -> None:
    with new_handler(tmp_path) as handler:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert handler.send_current_segment(ours) == 0
            handler.write_direct(b"x" * 1000)
            sent = handler.send_current_segment(ours)
            assert sent == handler.current_offset
            assert theirs.recv(1 << 20) == (Path(handler.base_name) / f"{0:020}.log").read_bytes()


def test_nothing_goes_over_a_socket_that_a_power_cut_could_take_back(tmp_path: Path) -> None:
    settings = {"fsync": "interval", "fsync_interval_ms": NEVER_MS}
    with handler_on(faulty(tmp_path), settings) as handler:
        handler.write_direct(b"shown")
        held_back = handler.append(b"held back")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            sent = handler.send_current_segment(ours)
            log = (Path(handler.base_name) / f"{0:020}.log").read_bytes()
            assert theirs.recv(1 << 20) == log
        assert sent == len(log)
        assert held_back.done()
        assert stored(tmp_path) == [b"shown", b"held back"]


def test_appends_and_reads_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    vfs, gate = faulty(tmp_path), Gate("fsync", ".log")
    handler = handler_on(vfs, linger_ms=NEVER_MS, disk_flush_batch_size=2)
    handler.write_direct(b"old")
    vfs.hook = gate
    futures = [handler.append(b"stuck") for _ in range(2)]
    gate.wait_until_reached()
    futures.append(handler.append(b"queued meanwhile"))
    assert handler.read_messages(0, 10).next_offset == 1
    assert not any(future.done() for future in futures)
    gate.open()
    handler.close()
    assert [future.result() for future in futures] == [1, 2, 3]
