"""What all tests share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.crashed_stores import let_go, remember_stores

# Seconds belong to the benchmarks: a busy machine must not fail a property.
settings.register_profile("cursus", deadline=None)
settings.load_profile("cursus")


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
