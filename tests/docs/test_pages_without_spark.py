"""The programs of the pages that need no Spark run in their order, as they stand."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT


@pytest.mark.parametrize("page", ["producers", "dataframes"])
def test_every_program_of_the_page_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    name = f"docs/{page}.md"
    before = signal.getsignal(signal.SIGTERM)  # a program sets it
    try:
        Kitchen(name, None, tmp_path).run_all((ROOT / name).read_text())
    finally:
        signal.signal(signal.SIGTERM, before)
    with Store.open(tmp_path / "log") as store:
        assert store.check() == []
