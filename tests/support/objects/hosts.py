"""Hosts of a test: this machine's loopback, or network namespaces that are hosts of their own.

A namespace has its own addresses and ports, and reaches the others by a bridge. Making one takes
the rights of an administrator; where they are missing, tests are skipped and say so.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

_SUBNET = "10.213.{0}.{1}"


class Host(NamedTuple):
    """An address, and the command that runs a program where the address is local."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()

    def start(
        self, command: Sequence[str | Path], directory: Path, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a program as the leader of a session; what it prints goes to a file."""
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [*self.enter, *map(str, command)],
                cwd=directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


LOOPBACK = Host()


def free_port() -> int:
    """A port of the loopback that nobody listens on just now."""
    with socket.socket() as free:
        free.bind((LOOPBACK.address, 0))
        return int(free.getsockname()[1])


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it has started, wherever they are in their work."""
    for pid in _session(leader.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    leader.wait(30)
    for pid in _session(leader.pid):  # started while the others were killed
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    found.append(int(entry.name))
    return found


@contextmanager
def namespaces(count: int) -> Iterator[list[Host]]:
    """Network namespaces as hosts; skips the test where they cannot be made."""
    mark = f"{os.getpid() % 0xFFFF:04x}"
    bridge, network = f"cb{mark}", os.getpid() % 200
    names = [f"cursus-{mark}-{number}" for number in range(count)]
    try:
        try:
            _ip("link", "add", "name", bridge, "type", "bridge")
            # The test itself is the last host of the network.
            _ip("addr", "add", f"{_SUBNET.format(network, 254)}/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            hosts = [
                _join(name, bridge, f"cv{mark}{number}", _SUBNET.format(network, number + 1))
                for number, name in enumerate(names)
            ]
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", b"") or b""
            pytest.skip(f"no network namespaces here: {error} {reason.decode().strip()}")
        yield hosts
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            for name in names:
                _ip("netns", "delete", name)
        with suppress(OSError, subprocess.SubprocessError):
            _ip("link", "delete", bridge)


def _join(name: str, bridge: str, link: str, address: str) -> Host:
    """A namespace with one address, connected to the bridge."""
    _ip("netns", "add", name)
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", link, "master", bridge, "up")
    inside = ("ip", "netns", "exec", name)
    for command in (
        ("addr", "add", f"{address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
    ):
        subprocess.run([*inside, "ip", *command], check=True, capture_output=True, timeout=30)
    return Host(address, inside)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)
