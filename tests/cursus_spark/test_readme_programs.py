"""The README's programs run in their order, as they stand, with the session of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.paths import ROOT

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)


@pytest.mark.usefixtures("spark")
def test_the_readmes_programs_run_as_they_stand(tmp_path: Path) -> None:
    names = {"path": str(tmp_path / "log"), "checkpoint": str(tmp_path / "checkpoint")}
    for program in PROGRAMS:
        exec(compile(program, "README.md", "exec"), names)
    with Store.open(tmp_path / "log") as store:
        kinds = {topic: store.topic(topic).is_typed for topic in store.topics()}
        assert kinds == {"clicks": False, "copy": True, "orders": True, "taps": False}
        assert store.check() == []
