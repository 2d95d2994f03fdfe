"""Building the package as a user gets it, from a copy of what belongs to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

_UNWANTED = ("PYTHONDONTWRITEBYTECODE",)
_FILES = ("pyproject.toml", "README.md", "LICENSE")


def source_files(*packages: str) -> Iterator[Path]:
    """The files of our packages, without what Python left beside them."""
    for package in packages:
        for file in sorted((ROOT / package).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def copy_source(target: Path) -> Path:
    """A source tree of its own: building leaves files behind."""
    for name in _FILES:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    for file in source_files("cursus_spark", "storage_core"):
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    return target


def build(kind: str, directory: Path) -> Path:
    """Build ``wheel``, ``editable`` or ``sdist`` with the installed setuptools: no network."""
    source, out = copy_source(directory / f"source-{kind}"), directory / "dist"
    out.mkdir(exist_ok=True)
    program = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    # With this variable set, setuptools says that it writes no bytecode.
    environment = {name: os.environ[name] for name in os.environ if name not in _UNWANTED}
    done = subprocess.run(
        # What setuptools says about every editable install is no warning of ours.
        [sys.executable, "-W", "error", "-W", "ignore:Editable", "-c", program],
        cwd=source,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower(), done.stderr
    return out / done.stdout.splitlines()[-1]


def build_wheel(directory: Path) -> Path:
    """A wheel of the working tree."""
    return build("wheel", directory)
