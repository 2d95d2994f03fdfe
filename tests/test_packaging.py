"""What a wheel and a source archive hold: all of our packages, and nothing else."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from storage_core import __version__
from tests.support.built_wheel import build, source_files
from tests.support.paths import ROOT

AUTOLOAD = "cursus_spark/autoload"
# Spark finds the source by itself.
PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(10).selectExpr("id", "string(id) AS text")
frame.write.format("cursus").option("topic", "t").mode("append").save(sys.argv[1])
back = spark.read.format("cursus").option("subscribe", "t").load(sys.argv[1])
assert back.exceptAll(frame).isEmpty() and back.count() == 10
"""


def installed_name(path: str) -> str:
    return path.replace(AUTOLOAD, "pyspark_cursus")


def expected_files() -> set[str]:
    kept = (".py", "py.typed")
    files = (str(file.relative_to(ROOT)) for file in source_files("cursus_spark", "storage_core"))
    return {installed_name(file) for file in files if file.endswith(kept)}


def test_the_changelog_has_this_version_and_its_date() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (.+)$", text, re.M)
    released = [name for name in sections if name != "Unreleased"]
    version, _, date = released[0].partition(", ")
    assert version == __version__
    assert datetime.date.fromisoformat(date) <= datetime.datetime.now(datetime.UTC).date()
    assert sections.index(released[0]) <= 1


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_what_make_dist_builds_runs_spark_in_a_clean_environment(tmp_path: Path) -> None:
    """It takes what pip needs from the network, as a release does."""
    clone, clean = tmp_path / "clone", tmp_path / "clean"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run([clone / ".ci" / "dist"], check=True)
    built = {file.name for file in (clone / "dist").iterdir()}
    wheel = f"cursus_spark-{__version__}-py3-none-any.whl"
    assert built == {wheel, f"cursus_spark-{__version__}.tar.gz"}
    venv.create(clean, with_pip=True)
    python, install = clean / "bin" / "python", ["-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([python, *install, f"{clone / 'dist' / wheel}[spark,cli]"], check=True)
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": ""}
    del environment["PYSPARK_DRIVER_PYTHON"]
    store = tmp_path / "store"
    for command in (f"{python} -c {shlex.quote(PROGRAM)}", f"{clean}/bin/cursus check"):
        words = [*shlex.split(command), str(store)]
        subprocess.run(words, cwd=tmp_path, env=environment, check=True)


def test_the_list_of_packages_is_complete() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {file.rpartition("/")[0] for file in expected_files()}
    assert settings["packages"] == sorted(folder.replace("/", ".") for folder in folders)


def test_the_wheel_holds_every_module_and_the_type_marker(tmp_path: Path) -> None:
    with zipfile.ZipFile(build("wheel", tmp_path)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == expected_files()
    assert {"cursus_spark/py.typed", "storage_core/py.typed"} <= names


def test_the_source_archive_builds_the_same(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(file.relative_to(ROOT)) for file in source_files("cursus_spark")} <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not any(name.startswith(("tests", "benchmarks", "build")) for name in names)


@pytest.mark.parametrize(("kind", "found"), [("wheel", "True True"), ("editable", "True False")])
def test_spark_finds_an_installed_package_and_no_editable_one(
    tmp_path: Path, kind: str, found: str
) -> None:
    """Spark lists modules. An editable install can be imported and is in no list: see the docs."""
    site = tmp_path / "site"
    with zipfile.ZipFile(build(kind, tmp_path)) as wheel:
        wheel.extractall(site)
    program = (
        f"import pkgutil, site, sys; site.addsitedir({str(site)!r});"
        f"sys.path.append({sysconfig.get_path('purelib')!r}); import pyspark_cursus as p;"
        "names = [each.name for each in pkgutil.iter_modules()];"
        f"print({str(tmp_path)!r} in p.__file__, 'pyspark_cursus' in names)"
    )
    done = subprocess.run(
        [sys.executable, "-ISc", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, found), done.stderr
