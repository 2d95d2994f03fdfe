"""The first contact: ``register`` and the Python of Spark's tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.built_wheel import build_wheel
from tests.support.paths import ROOT
from tests.support.stores import make_store

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from cursus_spark import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    print("REGISTER", file=sys.stderr)
    register(spark)
    register(spark)
    print(spark.read.format("cursus").option("subscribe", "t").load(sys.argv[1]).columns)
except Exception as error:
    print("ERROR", error)
print("REGISTERED", file=sys.stderr)
"""

# Spark finds the source by itself: nobody calls register.
FOUND = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
read = spark.read.format("cursus").option("subscribe", "t")
stream = spark.readStream.format("cursus").option("subscribe", "t")
rows = spark.range(1).selectExpr("string(id) AS value").write.format("cursus").option("topic", "t")
for job in (read.load, stream.load, rows.mode("append").save):
    try:
        job(sys.argv[1])
    except Exception as error:
        print("ERROR", error)
"""


def run(
    path: Path, packages: Path, program: str = PROGRAM, **variables: str
) -> subprocess.CompletedProcess[str]:
    # Spark looks for sources in the second one, if it is set.
    pythons = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    wanted = {name: text for name, text in os.environ.items() if name not in pythons}
    environment = {**wanted, "PYTHONPATH": str(packages), **variables}
    return subprocess.run(
        [sys.executable, "-c", program, str(path)],
        cwd=path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has nothing."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin"


@pytest.mark.parametrize("named", [True, False], ids=["wrong", "unset"])
def test_a_python_without_the_package_is_one_line(bare: Path, tmp_path: Path, named: bool) -> None:
    if named:
        done = run(tmp_path, Path(), PYSPARK_PYTHON=str(bare / "python3"))
    else:
        done = run(tmp_path, Path(), PATH=f"{bare}:{os.environ['PATH']}")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
    assert "[CURSUS_PYTHON_UNUSABLE] Spark runs tasks with" in line
    assert ("because PYSPARK_PYTHON is not set" in line) is not named
    assert "does not have cursus_spark, storage_core, pyarrow" in line
    assert f"PYSPARK_PYTHON={sys.executable}" in line


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the package, as from ``pip install --no-deps``."""
    folder = tmp_path_factory.mktemp("partial")
    venv.create(folder / "venv", with_pip=False)
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(packages)
    return folder / "venv" / "bin"


@pytest.mark.parametrize("named", [True, False], ids=["wrong", "unset"])
def test_a_source_that_spark_found_says_in_one_line_what_its_python_lacks(
    partial: Path, tmp_path: Path, named: bool
) -> None:
    if named:
        done = run(tmp_path, tmp_path, FOUND, PYSPARK_PYTHON=str(partial / "python3"))
    else:
        path = f"{partial}:{os.environ['PATH']}"
        done = run(tmp_path, tmp_path, FOUND, PATH=path)
    lines = [line for line in done.stdout.splitlines() if "CURSUS" in line]
    assert len(lines) == 3, done.stdout
    for line in lines:
        assert f"[CURSUS_PYTHON_UNUSABLE] Spark runs tasks with '{partial}/python3'" in line
        assert ("because PYSPARK_PYTHON is not set" in line) is not named
        assert "does not have pyarrow, numpy, crc32c, yaml, sqlglot. Set PYSPARK_PYTHON" in line
    assert "Traceback" not in done.stdout


def test_a_python_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, ROOT, PYSPARK_PYTHON="/no/such/python")
    assert "[CURSUS_PYTHON_UNUSABLE] Spark runs tasks with '/no/such/python'" in done.stdout
    assert "cannot be started (No such file or directory)" in done.stdout


@pytest.mark.parametrize("installed", [True, False], ids=["wheel", "source"])
def test_registering_causes_no_warning(tmp_path: Path, installed: bool) -> None:
    packages = ROOT
    if installed:
        packages = tmp_path / "site"
        with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
            wheel.extractall(packages)
    make_store(tmp_path / "log").close()
    done = run(tmp_path / "log", packages, PYSPARK_PYTHON=sys.executable)
    between = done.stderr.partition("REGISTER\n")[2].partition("REGISTERED")[0]
    assert "WARN" not in between
    assert "['key', 'value', 'topic'" in done.stdout
