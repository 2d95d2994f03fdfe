"""``report``: one page that needs nothing else, looked at in a browser where there is one."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from storage_core import Store
from storage_core.cli.inspect.store_facts import PartitionFacts, SegmentFacts, TopicFacts
from storage_core.cli.report.page import page
from storage_core.cli.report.statistics import StoreReport, TopicReport
from tests.support.browser import chromium, measured, needs_browser, outlines
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, made_typed, run, timed
from tests.support.stores import T0, overwrite

_VOID = ("meta",)


class _Page(HTMLParser):
    """Checks that tags match, and collects what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href", "onclick"), (tag, value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += f"{data} "


def report(path: Path, *words: object) -> _Page:
    target = path.parent / "report.html"
    done("report", path, "-o", target, *words)
    text = target.read_text()
    assert re.search(r"https?:|<script|@import|url\(", text) is None
    return _Page(text)


def busy(path: Path) -> Path:
    timed(path, partitions=2, compression="zstd", index_interval_bytes=64)
    with Store.open(path) as store:
        store.roll(TOPIC, 0)
        store.append(TOPIC, 0, [b"x" * 5000] * 20)
        store.commit_offsets("readers", {TOPIC: {0: 4, 1: 10}})
    return path


def test_the_page_shows_everything(tmp_path: Path) -> None:
    page = report(busy(tmp_path / "log"))
    for words in (
        "Segments over time",
        "records per second",
        "bytes per second",
        "Record sizes",
        "Compression",
        "Consumer groups",
        "readers",
        "Every byte was read",
        "zstd",
    ):
        assert words in page.text, words
    assert page.tags.count("svg") == 4
    assert "script" not in page.tags


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_layouts_without_times_say_so(tmp_path: Path, layout: str) -> None:
    page = report(made(tmp_path / "log", layout, partitions=2))
    assert "Segments over offsets (this layout stores no timestamps)" in page.text
    assert "Record sizes" in page.text
    assert "per second" not in page.text


def test_problems_are_on_the_page_and_do_not_keep_it_from_being_made(tmp_path: Path) -> None:
    path = busy(tmp_path / "log")
    done("create", path, "other")
    (path / "topics" / "other" / "topic.json").write_text("<b>")
    file = path / "topics" / TOPIC / "1" / "segments" / f"{0:020}.log"
    overwrite(file, lambda data: data.__setitem__(100, data[100] ^ 1))
    page = report(path)
    assert "LOG_DAMAGED" in page.text
    assert "METADATA_DAMAGED" in page.text
    assert "The store was not checked" in report(path, "--no-check").text


def test_an_empty_store_and_a_sample_make_a_page_too(tmp_path: Path) -> None:
    Store.open(tmp_path / "empty", create=True).create_topic("new")
    assert "No records yet." in report(tmp_path / "empty").text
    assert "of 6 measured records" in report(busy(tmp_path / "log"), "--sample", 3).text
    assert "All records have the same timestamp" in report(made(tmp_path / "one")).text
    assert run("report", tmp_path / "log", "-o", tmp_path / "no" / "x.html").code == 1


def test_without_a_file_the_page_goes_to_standard_output(tmp_path: Path) -> None:
    assert done("report", timed(tmp_path)).out.startswith("<!doctype html>")


def test_the_time_axis_begins_with_the_oldest_record_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Store.open(path, create=True) as store:
        store.create_topic(TOPIC)
        for second in (50, 10, 90, 60):  # one frame each, the oldest and the latest inside
            store.append(TOPIC, 0, [b"v"], timestamps=[T0 + second * 1_000_000])
    page = report(path)
    first, last = "2023-11-14 22:13:30Z", "2023-11-14 22:14:50Z"
    # The axis of the segments, and those of the two rates.
    assert len(re.findall(rf"(?<!from )(?<!, ){first} +{last}", page.text)) == 3


def test_a_number_that_is_wider_than_its_tile_gets_a_smaller_font(tmp_path: Path) -> None:
    path = tmp_path / "log"
    facts = SegmentFacts(0, 1, "x", 1, False, 1_234_567_890)
    partition = PartitionFacts(TOPIC, 0, 0, 1, (facts,), False)
    topic = TopicReport(TopicFacts(TOPIC, partitions=(partition,)), None, None, None)
    text = page(StoreReport(str(path), "native", T0, (topic,), (), None))
    assert '<b class="long">1,234,567,890</b><span>records' in text
    assert "<b>1</b><span>topics" in text
    assert ".tile b.long { font-size: 14px" in text
    assert "<b>1&nbsp;B</b><span>log files" in text, "a number and its unit stay together"


@pytest.mark.slow
@needs_browser
def test_a_browser_shows_the_page_though_it_may_load_and_run_nothing(tmp_path: Path) -> None:
    report(busy(tmp_path / "log"))
    policy = "default-src &#x27;none&#x27;"
    assert policy in (tmp_path / "report.html").read_text()
    picture = tmp_path / "page.png"
    chromium(
        tmp_path / "profile",
        "--window-size=1000,1400",
        f"--screenshot={picture}",
        (tmp_path / "report.html").as_uri(),
    )
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 1000
    assert len(data) > 30_000, "an empty page compresses to a few kilobytes"


@pytest.mark.slow
@needs_browser
def test_the_page_fits_every_width_and_follows_the_dark_scheme(tmp_path: Path) -> None:
    path = busy(tmp_path / "log")
    long_name = "a-topic-with-a-name-that-no-phone-can-show-in-one-line-" * 3
    done("create", path, long_name, "--schema", f"{long_name.replace('-', '_')} BIGINT")
    with Store.open(path) as store:
        store.commit_offsets(long_name, {TOPIC: {0: 1}})
    report(path)
    widths = (320, 360, 480, 768, 1024, 1920)
    pages = [("report.html", width) for width in widths]
    light = measured(tmp_path, pages, tmp_path / "light")
    wanted = zip(widths, light, strict=True)
    assert [(width, found) for width, (found, _) in wanted if found > width] == []
    dark = measured(tmp_path, pages[:1], tmp_path / "dark", dark=True)
    assert dark[0][1] != light[0][1]


def test_the_keyboard_shows_where_it_is(tmp_path: Path) -> None:
    report(busy(tmp_path / "log"))
    text = (tmp_path / "report.html").read_text()
    assert ":focus-visible" in text
    # What scrolls sideways must be reachable without a mouse.
    scrolled = re.findall(r'<div class="scroll"[^>]*>', text)
    assert scrolled
    assert all('tabindex="0"' in tag and "aria-label" in tag for tag in scrolled)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_outlines_what_has_the_focus_of_the_keyboard(tmp_path: Path, dark: bool) -> None:
    report(busy(tmp_path / "log"))
    found = outlines(tmp_path, "report.html", tmp_path / "profile", dark=dark)
    assert len(found) > 3
    assert [each for each in found if not each.is_visible or each.width != "2px"] == []
    assert {each.color for each in found} == {"rgb(106, 160, 255)" if dark else "rgb(47, 111, 222)"}


def test_the_page_says_when_times_are_out_of_order(tmp_path: Path) -> None:
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic(TOPIC, 1)
        for time in (3, 4, 2):
            store.append(TOPIC, 0, [b"v"], timestamps=[time])
    assert "times out of order" in report(tmp_path / "log").text


def test_a_typed_topic_shows_its_schema_and_the_sizes_of_its_rows(tmp_path: Path) -> None:
    made_typed(tmp_path, "--key-columns", "user")
    done("alter", tmp_path, TOPIC, "--add-column", "`<b>` DECIMAL(10, 2)")
    text = done("report", tmp_path).out
    found = _Page(text)
    assert "typed topic · 1 partition · 3 records" in text
    assert "version 2 by alter at" in text
    assert "&lt;b&gt;" in text
    assert "<b>" not in text.partition("<h3>Schema")[2].partition("</table>")[0]
    assert '<td>user</td><td class="wide">STRING</td><td></td><td>key</td>' in text
    assert '<td>id</td><td class="wide">BIGINT</td><td>not null</td><td></td>' in text
    assert "<td>timestamp</td>" in text
    assert "Record sizes" in text
    assert "2026-11-01 09:00:00Z" in text
    assert not found.open
