"""Child processes for tests: started in milliseconds, talked to in lines, ended by their id."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.paths import ROOT

_SILENCE_S = 30.0


class Child:
    """One task in a process of its own."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel
        self._talk = channel.makefile("rw")

    def line(self) -> str:
        """The next line it says; empty when it is gone."""
        said = self._talk.readline()
        assert not said.startswith("error "), said
        return said.rstrip("\n") if said.endswith("\n") else ""

    def lines(self) -> list[str]:
        """Everything it says until it ends."""
        said = []
        while line := self.line():
            said.append(line)
        return said

    def say(self, line: str = "") -> None:
        """Send it a line."""
        self._talk.write(line + "\n")
        self._talk.flush()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> list[str]:
        """Kill it at once; return what it had said that was not read yet."""
        self.signal(signal.SIGKILL)
        said = self.lines()
        self.close()
        return said

    def close(self) -> None:
        self._talk.close()
        self._channel.close()


class Processes:
    """Starts children, and ends those that are left when the test is over."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.support.child", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        self._children: list[Child] = []

    def start(self, task: str, path: Path, **arguments: Any) -> Child:
        """Run a task of ``tests/support/child.py`` on the store at ``path``."""
        ours, theirs = socket.socketpair()
        request = json.dumps({"task": task, "path": str(path), **arguments}).encode()
        socket.send_fds(self._control, [request], [theirs.fileno()])
        theirs.close()
        pid = int(self._control.recv(64))
        ours.settimeout(_SILENCE_S)
        child = Child(pid, ours)
        self._children.append(child)
        return child

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            # A closed channel belongs to a child that has ended; its id may be another's now.
            if child._channel.fileno() >= 0:
                child.close()
        self._control.close()
        self._server.wait(timeout=10)


def wait_until(condition: Any, seconds: float = 5.0) -> None:
    """Wait for something another thread or process will do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
