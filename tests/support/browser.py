"""Pages in a real browser: Chromium without a window, which reaches nothing but loopback."""

from __future__ import annotations

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT


def find_browser() -> str | None:
    """The program of a browser, by the names that ``.ci/setup`` knows."""
    names = (ROOT / ".ci" / "browsers").read_text().split()
    return next(filter(None, map(shutil.which, names)), None)


BROWSER = find_browser()
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

# The pages stand in frames of the wanted widths: a window cannot be as narrow as a phone.
_FRAMES = """<!doctype html><body><script>
function measure(frame) {{
  const page = frame.contentDocument.documentElement;
  frame.dataset.found = page.scrollWidth + ' ' + getComputedStyle(frame.contentDocument.body).color
    + ' ' + getComputedStyle(frame.contentDocument.body).backgroundColor;
}}
</script>{frames}"""
# The load event, at which Chromium prints the page, waits for the picture, which is never there.
_LATER = """<!doctype html><body><iframe src="{page}" width="1200" height="800"></iframe>
<img src="/later/{seconds}" onerror="document.body.dataset.found =
  document.querySelector('iframe').contentDocument.querySelector('{selector}').innerText">"""
# Every element that the keyboard reaches, one after the other: what a reader sees around it.
_FOCUSED = """<!doctype html><body><script>
function visit(frame) {{
  const page = frame.contentDocument, found = [];
  const all = 'a[href], button, input, select, textarea, summary, [tabindex]';
  for (const each of page.querySelectorAll(all)) {{
    if (each.tabIndex < 0 || !each.getClientRects().length) continue;
    each.focus();
    if (page.activeElement !== each) continue;
    const style = frame.contentWindow.getComputedStyle(each);
    found.push([each.tagName.toLowerCase() + '.' + each.className, style.outlineStyle,
      style.outlineWidth, style.outlineColor]);
  }}
  frame.dataset.found = JSON.stringify(found);
}}
</script><iframe src="{page}" width="{width}" height="800" onload="visit(this)"></iframe>"""
_FRAME = '<iframe src="{page}" width="{width}" height="800" onload="measure(this)"></iframe>'


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/later/"):
            time.sleep(min(10.0, float(self.path.removeprefix("/later/"))))
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The files of a folder on loopback while the context lasts."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def chromium(profile: Path, *arguments: str) -> str:
    """Run Chromium to its end; what it prints."""
    done = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={profile}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measured(
    folder: Path, pages: list[tuple[str, int]], profile: Path, *, dark: bool = False
) -> list[tuple[int, str]]:
    """The width that each page of ``(file, width of the window)`` wants, and its colours."""
    frames = "".join(_FRAME.format(page=page, width=width) for page, width in pages)
    (folder / "frames.html").write_text(_FRAMES.format(frames=frames))
    with served(folder) as address:
        text = chromium(
            profile,
            *_scheme(dark),
            "--timeout=60000",
            "--dump-dom",
            f"{address}/frames.html",
        )
    found = re.findall(r'data-found="(\d+) ([^"]+)"', text)
    assert len(found) == len(pages), f"{len(found)} of {len(pages)} pages were loaded"
    return [(int(width), colours) for width, colours in found]


class Outline(NamedTuple):
    """What stands around an element that has the focus of the keyboard."""

    element: str
    style: str
    width: str
    color: str

    @property
    def is_visible(self) -> bool:
        return (
            self.style in ("auto", "solid", "dotted", "dashed", "double")
            and float(self.width.removesuffix("px")) >= 1
            and not re.fullmatch(r"rgba\(.*, 0\)|transparent", self.color)
        )


def outlines(
    folder: Path, page: str, profile: Path, *, width: int = 1000, dark: bool = False
) -> list[Outline]:
    """The outline of every element of a page that the keyboard reaches."""
    (folder / "frames.html").write_text(_FOCUSED.format(page=page, width=width))
    with served(folder) as address:
        text = chromium(profile, *_scheme(dark), "--dump-dom", f"{address}/frames.html")
    found = re.search(r'data-found="([^"]*)"', text)
    assert found, "the page was not loaded"
    return [Outline(*each) for each in json.loads(html.unescape(found[1]))]


def _scheme(dark: bool) -> list[str]:
    return ["--blink-settings=preferredColorScheme=0"] if dark else []


def text_later(folder: Path, page: str, selector: str, profile: Path, seconds: float) -> str:
    """What an element of a page says after its scripts had some time."""
    frame = _LATER.format(page=page, selector=selector, seconds=seconds)
    (folder / "frames.html").write_text(frame)
    with served(folder) as address:
        text = chromium(profile, "--dump-dom", f"{address}/frames.html")
    found = re.search(r'data-found="([^"]*)"', text)
    assert found, "the page was not loaded"
    return found[1]
