"""Every program of every page is run by a test, or a reason says why not."""

from __future__ import annotations

import pytest

from tests.support.page_programs import NOT_RUN, all_programs, why_not_run
from tests.support.paths import ROOT

_WITHOUT_SPARK = "tests/docs/test_pages_without_spark.py"
_IN_SPARK = "tests/cursus_spark/test_page_programs.py"
_TUTORIALS = "tests/cursus_spark/test_tutorials.py"
RUN_BY = {
    "README.md": "tests/cursus_spark/test_readme_programs.py",
    "docs/cli.md": _WITHOUT_SPARK,
    "docs/connector.md": _IN_SPARK,
    "docs/cookbook.md": "tests/cursus_spark/test_cookbook.py",
    "docs/dataframes.md": _WITHOUT_SPARK,
    "docs/index.md": _IN_SPARK,
    "docs/lifecycle.md": _WITHOUT_SPARK,
    "docs/metrics.md": "tests/cursus_spark/stream/test_lag_listener.py",
    "docs/operations.md": _WITHOUT_SPARK,
    "docs/producers.md": _WITHOUT_SPARK,
    "docs/streaming.md": _IN_SPARK,
    "docs/tutorials/five-minutes.md": _TUTORIALS,
    "docs/tutorials/ingest.md": _TUTORIALS,
    "docs/tutorials/operate.md": _TUTORIALS,
    "docs/tutorials/stream.md": _TUTORIALS,
    "docs/typed-topics.md": "tests/cursus_spark/typed/test_typed_topics_page.py",
}
"""Pages and the test that runs all of their programs but those of ``NOT_RUN``."""
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for found in (
        ROOT.glob("*.md"),
        (ROOT / "docs").rglob("*.md"),
        (ROOT / "examples").glob("*.md"),
        (ROOT / "tests").rglob("*.md"),
    )
    for page in found
)


@pytest.mark.parametrize("page", PAGES)
def test_every_program_is_run_or_has_a_reason(page: str) -> None:
    found = list(all_programs((ROOT / page).read_text()))
    left = [program for program in found if why_not_run(page, program) is None]
    assert (page in RUN_BY) == bool(left), "list the test that runs the programs of this page"
    reasons = NOT_RUN.get(page, {})
    used = {each for each in reasons for one in found if one.text.startswith(each)}
    assert used == set(reasons), "a reason for a program that is not there"


@pytest.mark.parametrize("page", RUN_BY)
def test_the_test_names_the_page(page: str) -> None:
    text = (ROOT / RUN_BY[page]).read_text()
    assert (
        page in text
        or page.removeprefix("docs/").removesuffix(".md") in text
        or (page.startswith("docs/tutorials/") and "tutorials/" in text)
    )
