"""A worker that unpickles a task acknowledges it: Spark sends the input of the task right after."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cursus_spark import worker as worker_module
from cursus_spark.options.parse import (
    parse_read_options,
    parse_stream_read_options,
    parse_stream_write_options,
    parse_write_options,
)
from cursus_spark.read.reader import CursusReader
from cursus_spark.schema import read_schema
from cursus_spark.stream.reader import CursusStreamReader
from cursus_spark.stream.writer import CursusStreamWriter
from cursus_spark.worker import SentToTasks, acknowledge_now
from cursus_spark.write.writer import CursusWriter

READ = {"path": "/data/log", "subscribe": "t"}
WRITE = {"path": "/data/log", "topic": "t"}
COLUMNS = read_schema(include_headers=False)
DELAY = 0.04
"""The kernel's timer of acknowledgements."""


class Task(SentToTasks):
    """Stands for a reader: an object that Spark sends to a worker."""

    def __init__(self) -> None:
        self.number = 1


@contextmanager
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Spark's end and the worker's end, as Spark opens them."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=10) as spark,
        server.accept()[0] as worker,
    ):
        worker.settimeout(10)
        yield spark, worker


def wait_for_input(spark: socket.socket, worker: socket.socket, task: bytes) -> float:
    """Seconds from the function of a task to its input, for a worker that had a task before."""
    spark.sendall(b"task")
    worker.recv(4)
    worker.sendall(b"rows")  # an answer: from now on the worker's kernel delays acknowledgements
    spark.recv(4)
    spark.sendall(task)
    spark.sendall(b"input")
    begin = time.perf_counter()
    pickle.loads(worker.recv(len(task)))
    worker.recv(5)
    return time.perf_counter() - begin


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
def test_input_follows_the_function_without_the_kernels_delay() -> None:
    with connection() as (spark, worker):
        waits = [wait_for_input(spark, worker, pickle.dumps(Task())) for _ in range(10)]
    assert min(waits) < DELAY / 2


@pytest.mark.parametrize(
    "sent",
    [
        lambda: CursusReader(parse_read_options(READ, {}), COLUMNS),
        lambda: CursusStreamReader(parse_stream_read_options(READ, {}), COLUMNS),
        lambda: object.__new__(CursusWriter),
        lambda: object.__new__(CursusStreamWriter),
    ],
    ids=["reader", "stream reader", "writer", "stream writer"],
)
def test_everything_that_spark_sends_to_tasks_acknowledges(
    sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[int]()
    value = sent()
    if not isinstance(value, CursusReader | CursusStreamReader):
        value._options = (
            parse_write_options(WRITE)
            if isinstance(value, CursusWriter)
            else parse_stream_write_options(WRITE)
        )
    monkeypatch.setattr(worker_module, "acknowledge_now", lambda: calls.append(1))
    copy = pickle.loads(pickle.dumps(value))
    assert calls == [1]
    assert copy._options == value._options


def test_it_leaves_every_socket_open_and_usable() -> None:
    with connection() as (spark, worker), socket.socket(socket.AF_UNIX) as other:
        before = [each.fileno() for each in (spark, worker, other)]
        acknowledge_now()
        assert [each.fileno() for each in (spark, worker, other)] == before
        spark.sendall(b"x")
        assert worker.recv(1) == b"x"


def test_a_system_without_the_list_of_files_reads_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "_OPEN_FILES", "/nowhere")
    assert pickle.loads(pickle.dumps(Task())).number == 1
