"""The documentation site: it builds without a warning, loads nothing, and fits every screen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import measured, needs_browser, text_later
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# What a page may name without loading it: links of a reader's choice, and names of XML.
_LOADED = re.compile(r"""(?:<script[^>]+src|<img[^>]+src|<link[^>]+href)=["']?(https?:[^"' >]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does: a broken link or anchor fails it."""
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def test_every_page_of_the_docs_is_there(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    built = [
        site / page.with_suffix(".html").as_posix().replace("README.html", "index.html")
        for page in pages
    ]
    assert [str(page) for page in built if not page.is_file()] == []
    assert (site / "repository" / "CHANGELOG.html").is_file()


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    found = {page.name: _LOADED.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {name: hosts for name, hosts in found.items() if hosts} == {}


def test_named_examples_and_public_names_are_shown(site: Path) -> None:
    assert "```" not in re.sub(r"<code>`+</code>", "", (site / "format.html").read_text())
    reference = (site / "api" / "storage_core.html").read_text()
    for name in ("append_table", "delete_records", "DiskManager", "StoreConfig"):
        assert name in reference


@needs_browser
def test_every_page_fits_a_phone_and_follows_the_dark_scheme(site: Path, tmp_path: Path) -> None:
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    wanted = [page for page in pages if not page.startswith(("404", "frames"))]
    light = measured(site, [(page, 360) for page in wanted], tmp_path / "light")
    too_wide = [page for page, (width, _) in zip(wanted, light, strict=True) if width > 360]
    assert too_wide == []
    dark = measured(site, [("index.html", 1200)], tmp_path / "dark", dark=True)
    assert dark[0][1] != light[wanted.index("index.html")][1]


@needs_browser
def test_the_search_finds_a_word(site: Path, tmp_path: Path) -> None:
    found = text_later(site, "index.html?q=tombstone", ".md-search-result", tmp_path / "profile", 4)
    assert "Glossary" in found
