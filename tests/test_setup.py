"""``.ci/setup``: it and the tests look for the same programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.browser import find_browser
from tests.support.paths import ROOT

BROWSERS = (ROOT / ".ci" / "browsers").read_text().split()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path: it has what the script runs, and no apt."""
    for name in ("bash", "dirname", "id"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "apt-get").chmod(0o755)
    (tmp_path / "sudo").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def setup(what: str) -> str:
    done = subprocess.run(
        [ROOT / ".ci" / "setup", what], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("name", BROWSERS)
def test_every_browser_that_setup_takes_is_one_that_the_tests_find(tools: Path, name: str) -> None:
    assert find_browser() is None
    assert "installing Chromium" in setup("browser")
    (tools / name).write_text("#!/bin/sh\n")
    (tools / name).chmod(0o755)
    assert find_browser() == str(tools / name)
    assert setup("browser") == ""
