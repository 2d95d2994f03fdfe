"""What a Spark session is asked: the Python of its tasks, known sources, what it does not show.

Without the first check a wrong ``PYSPARK_PYTHON`` is a long ``ModuleNotFoundError`` of a worker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .errors import python_unusable

# Names of modules, not of distributions. Only plans with a `where` need sqlglot too: they say so.
_NEEDED = ("cursus_spark", "storage_core", "pyarrow", "numpy", "crc32c", "yaml")
_PROGRAM = (
    "import importlib.util as u, sys; "
    "print(*[name for name in sys.argv[1:] if u.find_spec(name) is None])"
)
_PATIENCE_S = 30
_HIDDEN_OPTIONS = "spark.sql.redaction.options.regex"
_STORAGE_OPTIONS = "(^|[.])storage[.]"


def knows_source(spark: SparkSession, name: str) -> bool:
    """Whether Spark has found or registered a Python data source; False if it cannot be asked."""
    try:
        session = spark._jsparkSession
        return bool(session.sessionState().dataSourceManager().dataSourceExists(name))
    except (AttributeError, TypeError, PySparkException, Py4JError):
        return False


def hide_storage_options(spark: SparkSession) -> None:
    """Let Spark show no value of an option ``storage.<name>``.

    Its pages and its event log show the options of SQL commands, such as ``CREATE TEMPORARY VIEW``.
    By default they hide names with ``secret``, ``token``, ``password`` and ``credential``, but not
    ``account_key``.
    """
    found = spark.conf.get(_HIDDEN_OPTIONS, None) or "(?i)"
    if _STORAGE_OPTIONS not in found:
        separator = "" if found == "(?i)" else "|"
        spark.conf.set(_HIDDEN_OPTIONS, f"{found}{separator}{_STORAGE_OPTIONS}")


def _python_of_tasks(spark: SparkSession) -> str | None:
    """The Python that Spark starts for tasks; None where only a server knows it (Connect)."""
    try:
        return str(spark.sparkContext.pythonExec)
    except (AttributeError, PySparkException):
        return None


def require_package(spark: SparkSession) -> None:
    """Check the Python that Spark starts for tasks, unless it is the one that runs this.

    Planning runs in it on this machine too, so it can be tried here.

    Raises:
        CursusError: it cannot be started, or lacks a module.
    """
    python = _python_of_tasks(spark)
    if python is None or shutil.which(python) == sys.executable:
        return
    try:
        done = subprocess.run(
            [python, "-c", _PROGRAM, *_NEEDED],
            env={**os.environ, "PYTHONPATH": _path_of_tasks()},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return  # a busy machine says nothing about the package
    except OSError as error:
        raise python_unusable(
            python, f"cannot be started ({error.strerror})", sys.executable
        ) from None
    if done.returncode != 0:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise python_unusable(python, f"cannot be started ({reason})", sys.executable)
    if missing := done.stdout.split():
        raise python_unusable(python, f"does not have {', '.join(missing)}", sys.executable)


def _path_of_tasks() -> str:
    """Where tasks look for modules first: archives of ``--py-files`` come with the job."""
    shipped = [entry for entry in sys.path if entry.endswith((".zip", ".egg"))]
    return os.pathsep.join([*shipped, os.environ.get("PYTHONPATH", "")])
