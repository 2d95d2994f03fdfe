"""The list of scenarios is that of the tests."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.spark.chaos import SCENARIOS

HERE = Path(__file__).parent


def marked() -> set[str]:
    """Tests that carry the marker ``chaos``."""
    found = set()
    for file in HERE.rglob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                found |= {node.name} if "pytest.mark.chaos" in marks else set()
    return found


def test_every_scenario_has_its_test_and_every_test_its_scenarios() -> None:
    assert {scenario.test for scenario in SCENARIOS} == marked()
    assert len(set(SCENARIOS)) == len(SCENARIOS) >= 30
