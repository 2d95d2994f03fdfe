"""``docs/faults.md`` names, for every fault, the tests that cover it."""

from __future__ import annotations

from collections import Counter

from tests.crash.bugs.mutants import MUTANTS
from tests.crash.test_lifecycle_mutants import MUTANTS as LIFECYCLE_MUTANTS
from tests.crash.test_sync_sites import ARGUED_HARMLESS, ELSEWHERE, NOTICED
from tests.storage_core.objects.test_protocol_mutants import MUTANTS as OBJECT_MUTANTS
from tests.support.fault_rows import COUNT, DOCUMENT, TESTS, covered, documented


def test_every_row_is_covered_and_documented() -> None:
    assert sorted(covered()) == list(range(1, COUNT + 1))
    assert list(documented()) == list(range(1, COUNT + 1))


def test_the_document_names_the_tests_of_each_row() -> None:
    named = {number: row.tests for number, row in documented().items()}
    assert named == covered(), "run: python -m tests.support.fault_rows"


def test_the_document_counts_seeded_bugs_and_syncs() -> None:
    text = DOCUMENT.read_text()
    noticed, harmless = len(NOTICED) + len(ELSEWHERE), len(ARGUED_HARMLESS)
    assert f"| all of {len(MUTANTS) + len(LIFECYCLE_MUTANTS)} | all |" in text
    assert f"a test must find each one | all of {len(OBJECT_MUTANTS)} | all |" in text
    assert f"notice {noticed} of them, and for {harmless} the test file says why" in text
    assert f"| {noticed + harmless} | {noticed + harmless}, each" in text


def test_the_name_of_a_test_file_says_which_file_it_is() -> None:
    files = Counter(path.stem for path in TESTS.rglob("*.py"))
    assert {name for name, often in files.items() if often > 1} <= {"__init__", "conftest"}
