"""The programs of ``docs/tutorials/`` run on one log, in the order of the site's menu."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_core import Store
from tests.support.page_programs import Kitchen
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TUTORIALS = re.findall(r"tutorials/[\w-]+\.md", (ROOT / "mkdocs.yml").read_text())


def test_the_menu_and_the_landing_page_have_every_tutorial_in_one_order() -> None:
    pages = sorted(f"tutorials/{page.name}" for page in (ROOT / "docs/tutorials").glob("*.md"))
    assert sorted(TUTORIALS) == pages
    landing = (ROOT / "docs" / "index.md").read_text()
    assert re.findall(r"tutorials/[\w-]+\.md", landing) == TUTORIALS


def test_every_program_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    for page in TUTORIALS:
        kitchen = Kitchen(f"docs/{page}", spark, tmp_path)
        kitchen.run_all((ROOT / "docs" / page).read_text())
    assert "damage found" in kitchen.printed["Practise a damage"]
    for name in ("log", "backup"):
        with Store.open(tmp_path / name) as store:
            assert store.check() == []
