"""One-line errors: their text, their pickling, and what is turned into them."""

from __future__ import annotations

import errno
import importlib
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from pyspark import cloudpickle

from cursus_spark.errors import CursusError, cursus_error, one_line_errors, shown
from storage_core import Store
from storage_core.errors import TopicNotFoundError
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def _no_spark_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the code under test sets is undone too.
    for name in ("SPARK_PYTHON_RUNTIME", "SPARK_HIDE_TRACEBACK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_prints_as_one_line_without_a_module() -> None:
    error = cursus_error("OPTION_INVALID", "Option 'x' must be\ny, got\r\n'z'.")
    assert traceback.format_exception_only(error) == [
        "CursusError: [CURSUS_OPTION_INVALID] Option 'x' must be y, got 'z'.\n"
    ]


def test_knows_its_condition() -> None:
    assert cursus_error("TOPIC_NOT_FOUND", "No.").condition == "TOPIC_NOT_FOUND"
    assert CursusError("something else").condition == ""


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_survives_pickling(pickler: object) -> None:
    error = cursus_error("DATA_LOSS", "orders-0: gone.")
    copy = pickle.loads(pickler.dumps(error))  # type: ignore[attr-defined]
    assert type(copy) is CursusError
    assert str(copy) == str(error)


def test_turns_an_error_of_the_engine_into_its_code() -> None:
    with pytest.raises(CursusError) as caught, one_line_errors():
        raise TopicNotFoundError("Topic 'orders' does not exist in /data/log.")
    expected = "[CURSUS_TOPIC_NOT_FOUND] Topic 'orders' does not exist in /data/log."
    assert str(caught.value) == expected
    assert caught.value.__suppress_context__
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_works_as_a_decorator() -> None:
    @one_line_errors()
    def fail() -> None:
        raise TopicNotFoundError("Gone.")

    for _ in range(2):
        with pytest.raises(CursusError, match=r"^\[CURSUS_TOPIC_NOT_FOUND\] Gone\.$"):
            fail()


@pytest.mark.parametrize("error", [TopicNotFoundError("Gone."), cursus_error("X", "Gone.")])
def test_hides_the_traceback_in_a_worker(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    with pytest.raises(CursusError), one_line_errors():
        raise error
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


def test_leaves_unexpected_errors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_a_package_that_its_python_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.raises(CursusError) as caught, one_line_errors():
        importlib.import_module("crc32c")
    assert str(caught.value) == (
        f"[CURSUS_PYTHON_UNUSABLE] Spark runs tasks with '{sys.executable}', which does not have "
        "crc32c. Set PYSPARK_PYTHON to a Python that has all before Spark starts, or install "
        "cursus-spark there."
    )
    with pytest.raises(ModuleNotFoundError), one_line_errors():
        importlib.import_module("no_such_module_of_a_user")


WITHOUT_PARSER = """
import sys
sys.modules["sqlglot"] = None
from cursus_spark.datasource import CursusDataSource
options = {"path": sys.argv[1], "subscribe": "t"}
source = CursusDataSource(options)
reader = source.reader(source.schema())
print(sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)))
try:
    CursusDataSource({**options, "where": "offset > 1"}).schema()
except Exception as error:
    print(error)
"""


def test_only_a_where_needs_the_parser_of_sql_and_says_so(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic("t")
        store.append("t", 0, [b"a", b"b"])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PARSER, tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows, error = done.stdout.splitlines()
    assert rows == "2"
    assert error.startswith("[CURSUS_PYTHON_UNUSABLE] Spark runs tasks with")
    assert "which does not have sqlglot." in error


def test_a_file_that_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "no\nsuch"
    with pytest.raises(CursusError) as caught, one_line_errors():
        missing.read_bytes()
    assert str(caught.value) == (
        f"[CURSUS_IO] The operating system refused '{tmp_path}/no\\nsuch': No such file or "
        "directory (errno 2). Check that it exists and that this user may use it."
    )


def test_other_failures_of_the_system_keep_their_traceback() -> None:
    with pytest.raises(BrokenPipeError), one_line_errors():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_an_unfinished_generator_closes_quietly() -> None:
    def batches() -> object:
        with one_line_errors():
            yield 1

    generator = batches()
    assert next(generator) == 1  # type: ignore[call-overload]
    generator.close()  # type: ignore[attr-defined]


def test_shown_values_are_quoted_short_and_printable() -> None:
    assert shown("a'b") == "'a'b'"
    assert shown("a\nb\x1b") == "'a\\nb\\x1b'"
    assert shown(-1) == "'-1'"
    assert shown("x" * 300) == f"'{'x' * 200}…'"
