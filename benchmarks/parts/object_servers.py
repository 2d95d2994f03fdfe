"""The object store that benchmarks of objects measure against: a server on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.objects.disk_servers import SOUND, disk_server, installed
from tests.support.objects.object_server import BUCKET, running

from .. import data
from ..data import Sizes

# The fastest first. Those of Python packages are installed at their first use.
_NAMES = ("versitygw", "seaweedfs")


class Place(NamedTuple):
    """A bucket, and the options that reach it."""

    server: str
    url: str
    storage: Mapping[str, str]


@contextmanager
def serving(sizes: Sizes, directory: Path) -> Iterator[Place]:
    """An empty bucket: of a fast server with its data on disk, or of any one to try the code."""
    home = directory / "server"
    home.mkdir(parents=True)
    if sizes is data.TINY:
        with running() as options:
            yield Place("ministack", f"s3://{BUCKET}", options)
        return
    name = next((name for name in _NAMES if installed(SOUND[name])), _NAMES[-1])
    with disk_server(SOUND[name], home) as server:
        yield Place(name, server.url, server.options)
