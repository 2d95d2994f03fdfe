"""A server with S3's interface on this machine, for tests. It keeps nothing on disk.

It is a package of its own environment, because it pins versions that others need. Where it cannot
be installed, tests are skipped and say so.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.objects.hosts import LOOPBACK, Host, free_port
from tests.support.paths import ROOT

BUCKET = "bucket"
KEY, SECRET = "AKIATESTACCESSKEY", "a-very-secret-value"
_PACKAGE = "ministack"
HOME = ROOT / ".object-server"


def program() -> Path:
    """The server's program, installed at the first call; skips the test where that fails."""
    given = os.environ.get("CURSUS_OBJECT_SERVER")
    if given and not Path(given).exists():
        pytest.skip(f"CURSUS_OBJECT_SERVER={given} does not exist")
    return Path(given) if given else install(HOME, _PACKAGE, _PACKAGE)


def install(home: Path, package: str, name: str) -> Path:
    """A program of a package in an environment of its own; skips the test where that fails.

    Several processes of one test run may want it at once: one installs it, the others wait.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = home / "bin" / name
        if not found.exists():
            try:
                subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=120)
                pip = [str(home / "bin" / "pip"), "install", "--quiet", package]
                subprocess.run(pip, check=True, timeout=300, capture_output=True)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"the server {package} cannot be installed: {error}")
        return found


@contextmanager
def running(host: Host = LOOPBACK) -> Iterator[dict[str, str]]:
    """A server with an empty bucket; yields the storage options that reach it."""
    port = free_port()
    environment = {
        **os.environ,
        "BIND_HOST": host.address,
        "GATEWAY_PORT": str(port),
        "SERVICES": "s3",
    }
    process = subprocess.Popen(
        [*host.enter, program()],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"http://{host.address}:{port}"
        _make_bucket(process, f"{endpoint}/{BUCKET}")
        yield {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": KEY,
            "secret_access_key": SECRET,
        }
    finally:
        process.terminate()
        process.wait(30)


def _make_bucket(process: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > until:
                pytest.skip(f"the S3 server did not start: {error}")
            time.sleep(0.2)
