"""The programs of the pages that need no Spark run in their order, as they stand."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage_core import Store
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT


def nothing(_: Path) -> dict[str, Any]:
    """The page makes what it needs."""
    return {}


def another_store(data: Path) -> dict[str, Any]:
    """A topic to copy records to."""
    with Store.open(data / "other", create=True) as store:
        store.create_topic("orders", partitions=4)
    return {}


def small_segments(data: Path) -> dict[str, Any]:
    """A store that maintenance finds something to do in."""
    store = Store.open(data / "log", create=True)
    store.create_topic("orders", segment_bytes=64 << 10)
    store.create_topic("customers", cleanup_policy="compact")
    for _ in range(20):
        store.append("orders", 0, [b"order %d" % number for number in range(100)])
        store.roll("orders", 0)
        store.append("customers", 0, [b"a", b"b"], keys=[b"ada", b"ben"])
    return {"store": store, "too_late": lambda: False}


PAGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "cli": another_store,
    "dataframes": nothing,
    "lifecycle": small_segments,
    "operations": small_segments,
    "producers": nothing,
}


# It starts the command for every line.
SLOW = ("cli",)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in PAGES]
)
def test_every_program_of_the_page_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    name = f"docs/{page}.md"
    before = signal.getsignal(signal.SIGTERM)  # a program sets it
    names = PAGES[page](tmp_path)
    try:
        kitchen = Kitchen(name, None, tmp_path, names)
        assert kitchen.run_all((ROOT / name).read_text()) > 0
    finally:
        signal.signal(signal.SIGTERM, before)
        if "store" in names:
            names["store"].close()
    with Store.open(tmp_path / "log") as store:
        assert store.check() == []


def test_the_maintenance_of_the_lifecycle_page_does_what_its_comments_say(tmp_path: Path) -> None:
    store = small_segments(tmp_path)["store"]
    text = (ROOT / "docs/lifecycle.md").read_text()
    Kitchen("lifecycle", None, tmp_path, {"store": store, "too_late": lambda: False}).run_all(text)
    assert store.offsets("orders", 0).start == 1000
    keys = store.scan("customers", columns=["key"]).to_table()["key"].to_pylist()
    assert keys == [b"ada", b"ben"]
    store.close()
