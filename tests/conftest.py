"""What all tests share."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.crashed_stores import let_go, remember_stores
from tests.support.sizes import examples

# Seconds belong to the benchmarks: a busy machine must not fail a property.
settings.register_profile("cursus", deadline=None, max_examples=examples(100))
settings.load_profile("cursus")

_FILES = 8192


def pytest_configure() -> None:
    """Most users may have 1,024 files open; tests that crash stores in a loop leave more open."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
    if allowed not in (resource.RLIM_INFINITY, max(allowed, enough)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, most))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: "slow" not in item.keywords)


def pytest_collection_finish() -> None:
    """All modules are loaded and stay: the collector need not look at them again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def crashed_stores_let_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store that a test does not close is a process that crashed."""
    remember_stores(monkeypatch)
    yield
    let_go()
