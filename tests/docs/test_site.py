"""The documentation site: it builds without a warning, loads nothing, and fits every screen."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import measured, needs_browser, outlines, text_later
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# What a page may name without loading it: links of a reader's choice, and names of XML.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|link|use|image)\b[^>]*?\s"""
    r"""(?:src|srcset|href)=["']?((?:https?:)?//[^"' >]+)"""
)
_STYLED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""")
# Scripts of the theme that fetch a program if a page needs it.
_FETCHES = re.compile(r"""class=["'][^"']*\bmermaid\b|data-md-component=["']?source\b""")
# Python says before it connects anywhere, or asks for an address.
_WITHOUT_NETWORK = """
import runpy, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        raise SystemExit(f"the build asks the network: {event} {arguments}")
sys.addaudithook(refuse)
runpy.run_module("mkdocs", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does: a broken link or anchor fails it, and the network."""
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_NETWORK, "build", "--strict", "--site-dir", str(target)],
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


def test_every_page_of_the_navigation_is_a_link_of_its_own_name(site: Path) -> None:
    """A README among the pages of a section would otherwise be what the section's title opens."""
    pages = re.findall(r"^      - ([^:]+): (\S+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.M)
    text = (site / "index.html").read_text()
    links = re.findall(
        r'<a href="(\S+)\.html" class="md-nav__link">\s*<span[^>]*>(.*?)</span>', text, re.S
    )
    shown = {(html.unescape(name).strip(), page) for page, name in links}
    assert len(pages) > 20
    assert {(name, page.replace("README", "index")) for name, page in pages} - shown == set()


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    found = dict[str, list[str]]()
    for page in site.rglob("*.html"):
        text = page.read_text()
        found[page.name] = _LOADED.findall(text) + _STYLED.findall(text) + _FETCHES.findall(text)
    for sheet in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        found[sheet.name] = _STYLED.findall(sheet.read_text())
    assert len(found) > 30
    assert {name: hosts for name, hosts in found.items() if hosts} == {}


@pytest.mark.parametrize(
    "text",
    [
        '<link rel="stylesheet" href="https://fonts.example/css?family=A">',
        "<link href=//fonts.example/a.css rel=stylesheet>",
        '<script async src="https://cdn.example/x.js"></script>',
        "<style>@import 'https://fonts.example/a.css';</style>",
        "@font-face { src: url(https://fonts.example/a.woff2) }",
        '<pre class="mermaid"><code>graph</code></pre>',
    ],
)
def test_what_a_page_would_load_is_found(text: str) -> None:
    assert _LOADED.search(text) or _STYLED.search(text) or _FETCHES.search(text)


def test_named_examples_and_public_names_are_shown(site: Path) -> None:
    assert "```" not in re.sub(r"<code>`+</code>", "", (site / "format.html").read_text())
    reference = (site / "api" / "storage_core.html").read_text()
    for name in ("append_table", "delete_records", "DiskManager", "StoreConfig"):
        assert name in reference


def brightness(colours: str) -> tuple[float, float]:
    """Of the text and of its background, from 0 to 255."""
    text, back = re.findall(r"rgba?\(([^)]*)\)", colours)
    red_green_blue = [[float(part) for part in each.split(",")[:3]] for each in (text, back)]
    return sum(red_green_blue[0]) / 3, sum(red_green_blue[1]) / 3


@needs_browser
def test_every_page_fits_a_phone_and_follows_the_dark_scheme(site: Path, tmp_path: Path) -> None:
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    wanted = [page for page in pages if not page.startswith(("404", "frames"))]
    dark = measured(site, [(page, 360) for page in wanted], tmp_path / "dark", dark=True)
    assert [page for page, (width, _) in zip(wanted, dark, strict=True) if width > 360] == []
    for page, (_, colours) in zip(wanted, dark, strict=True):
        text, back = brightness(colours)
        assert back < 60 < 160 < text, page
    some = ["index.html", "connector.html", "api/storage_core.html"]
    for page, (width, colours) in zip(
        some, measured(site, [(page, 360) for page in some], tmp_path / "light"), strict=True
    ):
        text, back = brightness(colours)
        assert width <= 360, page
        assert text < 100 < 200 < back, page


@needs_browser
def test_the_focus_of_the_keyboard_is_outlined(site: Path, tmp_path: Path) -> None:
    found = outlines(site, "index.html", tmp_path / "profile")
    assert len(found) > 50
    assert [each for each in found if not each.is_visible or each.width != "2px"] == []


@needs_browser
def test_the_search_finds_a_word(site: Path, tmp_path: Path) -> None:
    found = text_later(site, "index.html?q=tombstone", ".md-search-result", tmp_path / "profile", 4)
    assert "Glossary" in found
