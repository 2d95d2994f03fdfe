"""A Spark task imports what it uses and no more: its process is new, and it waits for every module.

A count of modules holds what a stopwatch would measure, on any machine.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

import cursus_spark
import storage_core
from cursus_spark.datasource import CursusDataSource
from cursus_spark.options.parse import (
    parse_read_options,
    parse_stream_read_options,
    parse_stream_write_options,
    parse_write_options,
)
from cursus_spark.read.reader import CursusReader
from cursus_spark.schema import read_schema
from cursus_spark.stream.reader import CursusStreamReader
from cursus_spark.stream.writer import CursusStreamWriter
from cursus_spark.write.writer import CursusWriter
from storage_core import Store
from storage_core.predicate.binder import bind
from storage_core.predicate.parser import parse
from tests.support.paths import ROOT

TAGS = ArrayType(StringType())
ROWS = StructType([StructField("value", BinaryType())])
# Of ours: what only commits, maintenance, checks, brokers' directories, the driver or people use.
# Of others: what we or Arrow would import for what a task does not do. Arrow imports pandas, where
# it is installed, in pa.array, pa.scalar and to_numpy: see storage_core/format/numbers.py.
FORBIDDEN = (
    "asyncio",
    "cursus_spark.datasource",
    "cursus_spark.options.parse",
    "cursus_spark.options.table",
    "cursus_spark.options.values",
    "cursus_spark.read.planning",
    "cursus_spark.read.ranges",
    "cursus_spark.read.splits",
    "cursus_spark.stream.planner",
    "difflib",
    "http",
    "numpy.typing",
    "pandas",
    "pyarrow.compute",
    "sqlglot",
    "storage_core.brokers",
    "storage_core.checks",
    "storage_core.cli",
    "storage_core.commit.intents",
    "storage_core.commit.protocol",
    "storage_core.conversion",
    "storage_core.handlers",
    "storage_core.log.partition_log",
    "storage_core.log.recovery",
    "storage_core.maintenance",
    "storage_core.metadata.checkpoint",
    "storage_core.metadata.consumer_groups",
    "yaml",
)
# About half of what it was when a task imported everything. A module that a task does not use is
# imported through storage_core/lazy.py.
MOST_OF_OURS = 80
MOST_WITH_COLUMNS = 91
MOST_OF_OURS_TYPED = 98
READS = ("storage_core.segments", "cursus_spark.read", "cursus_spark.options.read_options")
SPARK_HAS = "import pyspark, pyspark.worker, pyspark.sql.datasource, pyarrow, numpy"

READ = f"""
import pickle, sys
{SPARK_HAS}
before = set(sys.modules)
reader, task = pickle.load(sys.stdin.buffer)
assert sum(batch.num_rows for batch in reader.read(task)) == 3
print(*sorted(set(sys.modules) - before), sep="\\n")
"""
WRITE = f"""
import pickle, sys
{SPARK_HAS}
before = set(sys.modules)
writer, rows = pickle.load(sys.stdin.buffer)
vars(sys.modules[type(writer).__module__])["_property"] = lambda name: "7"  # Spark's, of a stream
assert pickle.loads(pickle.dumps(writer.write(iter([rows])))).parts
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


PLAN = f"""
import pickle, sys
{SPARK_HAS}
before = set(sys.modules)
(source,) = pickle.load(sys.stdin.buffer)
reader = source.streamReader(source.schema())
start = reader.initialOffset()
assert reader.partitions(start, reader.latestOffset(start))
source.streamWriter(source.schema(), False)
print(*sorted(set(sys.modules) - before), sep="\\n")
"""


def run(program: str, *objects: object) -> list[str]:
    """Run a program in a new process with pickled objects on its input; its lines."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(objects),
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split()


def ours(modules: list[str]) -> list[str]:
    return [name for name in modules if name.partition(".")[0] in ("storage_core", "cursus_spark")]


def forbidden(modules: list[str]) -> list[str]:
    return [
        name
        for name in modules
        if any(name == each or name.startswith(f"{each}.") for each in FORBIDDEN)
    ]


@pytest.fixture
def path(tmp_path: Path) -> str:
    with Store.open(tmp_path / "log", create=True) as store:
        store.create_topic("t")
        store.append("t", 0, [b"a", b"b", b"c"])
    return str(tmp_path / "log")


def batch_reader(path: str) -> tuple[object, object]:
    options = parse_read_options({"path": path, "subscribe": "t"})
    reader = CursusReader(options, read_schema(include_headers=False))
    return reader, reader.partitions()[0]


def stream_reader(path: str) -> tuple[object, object]:
    options = parse_stream_read_options(
        {"path": path, "subscribe": "t", "startingOffsets": "earliest"}
    )
    reader = CursusStreamReader(options, read_schema(include_headers=True))
    start = reader.initialOffset()
    return reader, reader.partitions(start, reader.latestOffset(start))[0]


def typed_reader(path: str, **options: str) -> tuple[object, object]:
    with Store.open(path) as store:
        columns = {"id": [1, 2, 3], "text": ["a", None, "c"], "pair": [{"n": 1}, None, {"n": 3}]}
        store.create_topic("typed", schema=pa.table(columns).schema, compression="zstd")
        store.append_table("typed", pa.table(columns))
    source = CursusDataSource({"path": path, "subscribe": "typed", **options})
    reader = source.reader(source.schema())
    return reader, reader.partitions()[0]


def batch_writer(path: str) -> object:
    return CursusWriter(parse_write_options({"path": path, "topic": "t"}), ROWS)


def stream_writer(path: str) -> object:
    return CursusStreamWriter(parse_stream_write_options({"path": path, "topic": "t"}), ROWS)


@pytest.mark.parametrize("task", [batch_reader, stream_reader])
def test_a_reading_task_imports_only_what_it_uses(
    path: str, task: Callable[[str], tuple[object, object]]
) -> None:
    modules = run(READ, *task(path))
    assert forbidden(modules) == []
    assert len(ours(modules)) <= MOST_OF_OURS, ours(modules)


def test_a_task_that_reads_a_typed_topic_imports_only_what_it_uses(path: str) -> None:
    modules = run(READ, *typed_reader(path))
    assert forbidden(modules) == []
    assert len(ours(modules)) <= MOST_OF_OURS_TYPED, ours(modules)


def test_a_task_imports_the_functions_of_arrow_only_for_a_predicate(path: str) -> None:
    modules = run(READ, *typed_reader(path, where="id < 5 and pair.n is null or text <> 'b'"))
    assert set(forbidden(modules)) == {"pyarrow.compute"}
    assert "storage_core.predicate.parser" not in modules
    assert len(ours(modules)) <= MOST_OF_OURS_TYPED + 4, ours(modules)


@pytest.mark.parametrize("task", [batch_writer, stream_writer])
def test_a_writing_task_imports_only_what_it_uses(path: str, task: Callable[[str], object]) -> None:
    modules = run(WRITE, task(path), pa.record_batch({"value": pa.array([b"a", None])}))
    assert forbidden(modules) == []
    assert [name for name in modules if name.startswith(READS)] == []
    assert len(ours(modules)) <= MOST_OF_OURS, ours(modules)


def test_a_planner_of_a_stream_imports_no_parser_of_predicates(path: str) -> None:
    """Spark starts some processes for each query, and each of them plans."""
    options = {"path": path, "topic": "t", "startingOffsets": "earliest"}
    modules = run(PLAN, CursusDataSource(options))
    found = {name.partition(".")[0] for name in modules}
    assert found & {"sqlglot", "pandas"} == set()
    assert [name for name in modules if name.startswith("storage_core.predicate")] == []


SCAN = """
import pickle, sys
from storage_core import Store
(path,) = pickle.load(sys.stdin.buffer)
with Store.open(path) as store:
    assert store.scan("t").to_table().num_rows == 3
print("sqlglot" in sys.modules)
with Store.open(path) as store:
    assert store.scan("t", where="_offset > 0").to_table().num_rows == 2
print("sqlglot" in sys.modules)
"""
TEST = """
import pickle, sys
bound, columns = pickle.load(sys.stdin.buffer)
assert bound.mask(columns, 2).to_pylist() == [False, True]
print("sqlglot" in sys.modules)
"""


def test_sqlglot_is_imported_where_a_predicate_is_parsed_and_only_there(path: str) -> None:
    assert run(SCAN, path) == ["False", "True"]
    bound = bind(parse("id > 1"), pa.schema([("id", pa.int64())]))
    assert run(TEST, bound, {"id": pa.array([1, 2])}) == ["False"]


@pytest.mark.parametrize("source", [parse_write_options, parse_stream_write_options])
def test_a_task_that_writes_typed_rows_imports_only_what_it_uses(
    tmp_path: Path, source: Callable[[dict[str, str]], Any]
) -> None:
    options = source({"path": str(tmp_path / "log"), "topic": "typed", "timestampColumn": "at"})
    schema = StructType().add("id", "long").add("at", "timestamp").add("tags", TAGS)
    writer = (CursusWriter if source is parse_write_options else CursusStreamWriter)(
        options, schema
    )
    at = pa.array([1, None], pa.timestamp("us", tz="Europe/Berlin"))
    tags = pa.array([["a"], None], pa.list_(pa.field("element", pa.string())))
    modules = run(WRITE, writer, pa.record_batch({"id": [1, 2], "at": at, "tags": tags}))
    assert forbidden(modules) == ["pyarrow.compute"], "statistics need it"
    drivers = ("cursus_spark.typed", "cursus_spark.write.target")
    assert [name for name in modules if name.startswith((*READS, *drivers))] == []
    assert len(ours(modules)) <= MOST_WITH_COLUMNS, ours(modules)


@pytest.mark.parametrize("package", [storage_core, cursus_spark])
def test_public_names_are_imported_at_their_first_use(package: object) -> None:
    name = getattr(package, "__name__", "")
    program = f"""
import sys, {name} as package
assert not [module for module in sys.modules if module.startswith("{name}.") and
            module not in ("storage_core._version", "storage_core.lazy")]
assert set(package.__all__) <= set(dir(package))
for public in package.__all__:
    assert getattr(package, public) is getattr(package, public), public
try:
    package.nonsense
except AttributeError as error:
    print(error)
"""
    assert " ".join(run(program)) == f"module '{name}' has no attribute 'nonsense'"


def test_a_command_imports_pandas_only_where_arrow_does_for_its_records(path: str) -> None:
    program = """
import pickle, sys
from storage_core.cli.app import cli
(path,) = pickle.load(sys.stdin.buffer)
for words in (["topics"], ["describe"], ["check", "-q"], ["metrics"]):
    cli([words[0], path, *words[1:]], standalone_mode=False)
print("pandas" in sys.modules)
"""
    assert run(program, path)[-1] == "False"
