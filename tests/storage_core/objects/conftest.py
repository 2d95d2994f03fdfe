"""What the tests of stores of objects share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.faulty_vfs import FaultyVfs, faulty
from tests.support.objects.object_stores import make


@pytest.fixture
def vfs(tmp_path: Path) -> FaultyVfs:
    """The files of a new store without topics."""
    Store.open(tmp_path, layout="objects", create=True).close()
    return faulty(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make(tmp_path, 2) as found:
        yield found
