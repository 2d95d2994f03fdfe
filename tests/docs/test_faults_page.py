"""``docs/faults.md`` names, for every fault, the tests that cover it."""

from __future__ import annotations

from tests.support.fault_rows import COUNT, covered, documented


def test_every_row_is_covered_and_documented() -> None:
    assert sorted(covered()) == list(range(1, COUNT + 1))
    assert list(documented()) == list(range(1, COUNT + 1))


def test_the_document_names_the_tests_of_each_row() -> None:
    named = {number: row.tests for number, row in documented().items()}
    assert named == covered(), "run: python -m tests.support.fault_rows"
