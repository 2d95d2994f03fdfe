"""What child processes of the tests do, and the light parent that forks them.

Run as a module it serves requests: each names a task and carries one end of a socket pair, over
which the child and the test talk in lines. Forking from here costs milliseconds; starting Python
and loading Arrow for each child would cost a hundred times as much.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TextIO

from storage_core import DiskManager, Progress, Store, StoreConfig, convert
from storage_core.engine.native import NativeEngine
from storage_core.vfs import PosixVfs
from tests.crash.breakers import commit_tasks
from tests.support.faulty_vfs import FaultyVfs
from tests.support.stores import columns_of

Talk = TextIO


def say(talk: Talk, *words: object) -> None:
    """Send one line."""
    talk.write(" ".join(str(word) for word in words) + "\n")
    talk.flush()


def append_forever(talk: Talk, path: str, name: str, batch: int, **settings: Any) -> None:
    """Append until killed; acknowledge each append with its offsets and number."""
    with Store.open(path, config=StoreConfig(**settings)) as store:
        number = 0
        while True:
            written = store.append("t", 0, [b"%s-%d" % (name.encode(), number)] * batch)
            say(talk, written.start, written.end, number)
            number += 1


def handle_forever(talk: Talk, path: str, threads: int, **settings: Any) -> None:
    """Append single records from several threads until killed; say each future that resolves."""
    manager = DiskManager(StoreConfig(log_dir=path, **settings))
    handler = manager.get_handler("t", 0)
    telling = threading.Lock()

    def tell(future: Future[int], name: str) -> None:
        with telling:
            say(talk, future.result(), name)

    def produce(thread: int) -> None:
        for number in range(10**9):
            name = f"{thread}-{number}"
            handler.append(name.encode()).add_done_callback(partial(tell, name=name))

    for thread in range(1, threads):
        threading.Thread(target=produce, args=(thread,)).start()
    produce(0)


def append_times(talk: Talk, path: str, name: str, times: int, partition: int = 0) -> None:
    """Append ``count`` single records, then say done."""
    with Store.open(path) as store:
        for number in range(times):
            written = store.append("t", partition, [f"{name}-{number}".encode()])
            say(talk, written.start)
    say(talk, "done")


def open_and_append(talk: Talk, path: str, name: str) -> None:
    """First boot, topic and append, all at once with others."""
    with Store.open(path, create=True) as store:
        store.create_topic("t", exist_ok=True)
        say(talk, store.append("t", 0, [name.encode()]).start)


def hold(talk: Talk, path: str) -> None:
    """Hold the partition's lock, in the middle of an append, until asked to let go."""
    log = NativeEngine(PosixVfs(path), StoreConfig()).log("t", 0)
    with log.exclusive():
        log._tail.write(columns_of([b"half"]))
        say(talk, "held")
        talk.readline()
    say(talk, "released")


def recover_slowly(talk: Talk, path: str) -> None:
    """Hold the partition's lock in the middle of a recovery until asked to go on."""

    def wait(kind: str, at: str) -> None:
        if kind == "fsync_dir" and at.endswith("segments"):
            say(talk, "recovering")
            talk.readline()

    vfs = FaultyVfs(PosixVfs(path), hook=wait, boot=b"another boot id.")
    Store(vfs, StoreConfig()).append("t", 0, [b"late"])
    say(talk, "done")


def follow(talk: Talk, path: str) -> None:
    """Answer each line with the high watermark and the last value, without reopening."""
    store = Store.open(path)
    say(talk, "ready")
    while talk.readline():
        end = store.offsets("t", 0).end
        read = [row for batch in store.read("t", 0, start=end - 1) for row in batch.to_pylist()]
        say(talk, end, read[-1]["value"].decode())


def as_user(talk: Talk, path: str, user: int) -> None:
    """Append and roll, then recover, without the powers of root."""
    store = Store.open(path)
    PosixVfs(path).filesystem()  # loads a codec from where only root may read
    os.setgid(user)
    os.setuid(user)
    with store:
        store.append("t", 0, [b"a"])
        store.roll("t", 0)
        store.repair()
        store.append("t", 0, [b"b"])
    say(talk, "done")


def without_permission(talk: Talk, path: str, topic: str, user: int) -> None:
    """Read as a user who may only do that, then try to write in every way; say what comes."""
    list(Store.open(path).read(topic, 0))
    PosixVfs(path).filesystem()  # as above
    os.setgid(user)
    os.setuid(user)
    store = Store.open(path)
    say(talk, "read", sum(batch.num_rows for batch in store.read(topic, 0)))
    acts: dict[str, Callable[[], object]] = {
        "append": lambda: store.append(topic, 0, [b"more"]),
        "stage": lambda: store.stage("job"),
        "commit": lambda: store.commit("job", [], topics=[topic]),
        "abort": lambda: store.abort("job"),
        "create": lambda: store.create_topic("new"),
        "grow": lambda: store.add_partitions(topic, 5),
        "delete": lambda: store.delete_topic(topic),
        "roll": lambda: store.roll(topic, 0),
        "group": lambda: store.commit_offsets("readers", {topic: {0: 1}}),
        "retain": store.retain,
        "repair": store.repair,
    }
    for name, act in acts.items():
        try:
            act()
        except Exception as error:
            say(talk, name, type(error).__name__)
        else:
            say(talk, name, "nothing")
    say(talk, "errors", sum(problem.severity == "error" for problem in store.check()))


def convert_slowly(talk: Talk, path: str, to: str, layout: str) -> None:
    """Convert in small pieces, saying how far it is, until killed."""
    importlib.import_module("storage_core.conversion.convert").__dict__["_PIECE_BYTES"] = 4096

    def tell(progress: Progress) -> None:
        if progress.phase == "copy":
            say(talk, progress.records)

    convert(path, to, layout=layout, progress=tell)


TASKS: dict[str, Callable[..., None]] = {
    task.__name__: task
    for task in (
        *commit_tasks.TASKS,
        append_forever,
        append_times,
        as_user,
        convert_slowly,
        follow,
        handle_forever,
        hold,
        open_and_append,
        recover_slowly,
        without_permission,
    )
}


def _run(channel: socket.socket, request: dict[str, Any]) -> None:
    status = 0
    with channel, channel.makefile("rw") as talk:
        try:
            TASKS[request.pop("task")](talk, **request)
        except BaseException:
            status = 1
            with suppress(OSError):
                say(talk, "error", traceback.format_exc().replace("\n", " | "))
    os._exit(status)


def serve(control: socket.socket) -> None:
    """Fork a child for each request until the other side goes away."""
    columns_of([b""])  # the first conversion loads pandas, which no child should pay for
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not data:
            return
        channel = socket.socket(fileno=descriptors[0])
        pid = os.fork()
        if pid == 0:
            control.close()
            _run(channel, json.loads(data))
        channel.close()
        control.sendall(f"{pid}\n".encode())


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
