"""``docs/deployment.md``: the zip on a real cluster, and executors that do not see the store."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import StructType

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from storage_core import Store
from tests.support.built_wheel import build_wheel
from tests.support.paths import ROOT
from tests.support.spark import unshared_child
from tests.support.spark.cluster import cluster

PAGE = (ROOT / "docs" / "deployment.md").read_text()
ROWS = StructType().add("value", "string")
NAMED = StructType().add("topic", "string").add("value", "string")
# The zip comes before the path by which the tests find the packages.
_WRITE_AND_READ = """
frame = spark.range(100).selectExpr("id", "string(id) AS text")
frame.write.format("cursus").options(topic="t", numPartitions=4).mode("append").save(sys.argv[1])
back = spark.read.format("cursus").option("subscribe", "t").load(sys.argv[1])
assert back.exceptAll(frame).isEmpty() and back.count() == 100
"""
PROGRAM = """
import cursus_spark, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
cursus_spark.register(spark)
def found(rows):
    import storage_core
    yield storage_core.__file__
places = set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(found).collect())
assert all("cursus-spark.zip" in place for place in [cursus_spark.__file__, *places]), places
"""
PROGRAM += _WRITE_AND_READ
# Spark finds the source by itself, in the environment that it unpacked beside each executor.
PACKED = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
def found(rows):
    import cursus_spark, os, sys
    yield cursus_spark.__file__, sys.executable, os.getcwd()
places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(found)
for place, python, own in places.collect():
    assert place.startswith(f"{own}/env/") and python.startswith(f"{own}/"), (place, python, own)
"""
PACKED += _WRITE_AND_READ


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_zip_of_the_page_runs_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    built = subprocess.run(
        [ROOT / ".ci" / "zip", tmp_path], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    [line] = re.findall(r"^spark-submit --master spark.*$", PAGE, re.M)
    program, shared = tmp_path / "program.py", tmp_path / "shared"
    program.write_text(PROGRAM)
    with cluster(tmp_path / "cluster") as machines:
        settings = machines.settings()
        del settings["spark.executorEnv.PYTHONPATH"]
        words = line.replace("spark://master:7077", machines.master).split()
        words[0] = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        words[words.index("dist/cursus-spark.zip")] = str(tmp_path / "cursus-spark.zip")
        words[-2:] = [str(program), str(shared)]
        words[1:1] = [word for name in settings for word in ("--conf", f"{name}={settings[name]}")]
        environment = {**machines.environment("driver"), "PYTHONPATH": ""}
        driver = machines.host.start(words, tmp_path / "cluster" / "driver", environment)
        assert driver.wait(300) == 0, machines.output("driver")
    with Store.open(shared) as store:
        assert sum(store.visible_ends("t")) == 100


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_packed_environment_comes_with_the_job(tmp_path: Path) -> None:
    """It takes what pip needs from the network. Spark's own files are those of the cluster."""
    block = PAGE.partition("### A packed environment")[2].partition("```text\n")[2]
    lines = block.partition("```")[0].splitlines()
    wheel = build_wheel(tmp_path)
    names = re.compile(r"dist/\S+\.whl\[spark,")
    [made, installed, packed] = (names.sub(f"{wheel}[", line) for line in lines[:3])
    assert f"{wheel}[objects]" in installed
    directory, program = tmp_path / "cluster" / "driver", tmp_path / "program.py"
    directory.mkdir(parents=True)
    program.write_text(PACKED)
    script = "\n".join(["set -e", made.replace("python3", sys.executable), installed, packed])
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True)
    (directory / "env").mkdir()
    shutil.unpack_archive(tmp_path / "env.tar.gz", directory / "env", filter="fully_trusted")
    shutil.rmtree(tmp_path / "env")
    with cluster(tmp_path / "cluster") as machines:
        settings = {**machines.settings(), "spark.executorEnv.PYTHONPATH": ""}
        pairs = [word for name in settings for word in ("--conf", f"{name}={settings[name]}")]
        archive = ["--archives", f"{tmp_path / 'env.tar.gz'}#env"]
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        environment = {**machines.environment("driver"), "PYTHONPATH": ""}
        [(name, python)] = re.findall(r"^export (\w+)=(\S+)$", block, re.M)
        environment |= {name: python, "PYSPARK_DRIVER_PYTHON": python}
        words: list[str | Path] = [submit, *pairs, *archive, program, tmp_path / "shared"]
        driver = machines.host.start(words, directory, environment)
        assert driver.wait(300) == 0, machines.output("driver")
    with Store.open(tmp_path / "shared") as store:
        assert sum(store.visible_ends("t")) == 100


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_executors_with_disks_of_their_own_say_so_and_write_nothing(tmp_path: Path) -> None:
    checkpoints = str(tmp_path / "checkpoints")
    with cluster(tmp_path / "cluster") as machines:
        settings = machines.settings()
        pairs = [word for name in settings for word in ("--conf", f"{name}={settings[name]}")]
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        driver = machines.host.start(
            [submit, *pairs, unshared_child.__file__, checkpoints],
            tmp_path / "cluster" / "driver",
            machines.environment("driver"),
        )
        assert driver.wait(300) == 0, machines.output("driver")
        said = machines.output("driver")
    attempts = dict(re.findall(r"^ATTEMPT (.*?): (.*)$", said, re.M))
    asked = r"\[CURSUS_\w+\] Does every node see the (?:same )?directory"
    found = {what: re.findall(asked, text)[:1] for what, text in attempts.items()}
    none = ["[CURSUS_LAYOUT_NOT_FOUND] Does every node see the directory"]
    other = ["[CURSUS_IDENTITY_MISMATCH] Does every node see the same directory"]
    assert found == {
        "batch without store": none,
        "stream without store": none,
        "batch with another store": other,
        "stream with another store": other,
        "read of another store": other,
    }, said
    assert re.findall(r"^(?:EXECUTORS|DRIVER) .*$", said, re.M) == [
        "EXECUTORS {()}",
        "EXECUTORS {('mine',)}",
        "DRIVER ['mine']",
    ]


TOPIC_OF_OPTION = pytest.mark.parametrize("topic", ["t", None])
"""Rows that go to the topic of the option, and rows that name theirs."""


def options_of(path: Path, topic: str | None, **more: str) -> dict[str, str]:
    return {"path": str(path), **({} if topic is None else {"topic": topic}), **more}


@TOPIC_OF_OPTION
def test_a_task_that_does_not_see_the_store_says_so_and_makes_none(
    tmp_path: Path, topic: str | None
) -> None:
    path = tmp_path / "log"
    source = CursusDataSource(options_of(path, topic))
    rows = pa.RecordBatch.from_pydict({"topic": ["t"], "value": ["a"]})
    writer = source.writer(NAMED if topic is None else ROWS, overwrite=False)
    shutil.move(path, tmp_path / "elsewhere")
    with pytest.raises(CursusError, match=r"LAYOUT_NOT_FOUND.*Does every node see.*on host '"):
        writer.write(iter((rows,)))
    assert not path.exists()


@TOPIC_OF_OPTION
@pytest.mark.parametrize("layout", ["native", "objects"])
def test_a_task_that_sees_another_store_says_so_and_writes_nothing(
    tmp_path: Path, topic: str | None, layout: str
) -> None:
    path = tmp_path / "log"
    source = CursusDataSource(options_of(path, topic, layout=layout))
    rows = pa.RecordBatch.from_pydict({"topic": ["t"], "value": ["a"]})
    writer = source.writer(NAMED if topic is None else ROWS, overwrite=False)
    with Store.open(path) as store:
        own = store.store_uuid()
    shutil.move(path, tmp_path / "elsewhere")
    with Store.open(path, layout, create=True) as store:
        other = store.store_uuid()
    before = sorted(path.rglob("*"))
    with pytest.raises(CursusError) as caught:
        writer.write(iter((rows,)))
    assert str(caught.value) == (
        f"[CURSUS_IDENTITY_MISMATCH] Does every node see the same directory {path}? The driver has "
        f"store {own} there, but a task on host '{os.uname().nodename}' finds store {other}. Mount "
        "one directory on every node, or use an object store; see docs/deployment.md."
    )
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("layout", ["native", "objects", "cursus", "cursus-broker", "rustlog"])
def test_rows_that_name_their_topics_begin_a_store_of_any_layout(
    tmp_path: Path, layout: str
) -> None:
    path = tmp_path / "log"
    options = options_of(path, None, layout=layout, numPartitions="1")
    writer = CursusDataSource(options).writer(NAMED, overwrite=False)
    rows = pa.RecordBatch.from_pydict({"topic": ["a", "b"], "value": ["x", "y"]})
    writer.commit([writer.write(iter((rows,))), writer.write(iter((rows,)))])
    with Store.open(path, layout) as store:
        assert [store.visible_ends(topic) for topic in ("a", "b")] == [(2,), (2,)]


@pytest.mark.parametrize("layout", ["native", "objects"])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_reading_task_that_sees_another_store_says_so(
    tmp_path: Path, layout: str, fail: str
) -> None:
    path = tmp_path / "log"
    for place in (path, tmp_path / "other"):
        with Store.open(place, layout, create=True) as store:
            store.create_topic("t")
            store.append("t", 0, [b"a"])
    options = {"path": str(path), "subscribe": "t", "failOnDataLoss": fail}
    reader = CursusDataSource(options).reader(ROWS)
    [task] = pickle.loads(pickle.dumps(reader.partitions()))
    shutil.move(path, tmp_path / "elsewhere")
    shutil.move(tmp_path / "other", path)
    with pytest.raises(CursusError, match=r"IDENTITY_MISMATCH.*Does every node see.*on host '"):
        list(reader.read(task))


def test_a_store_without_its_identity_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Store.open(path, create=True) as store:
        store.create_topic("t")
        store.append("t", 0, [b"a"])
    (path / "meta" / "broker.id").write_bytes(b"damaged")
    reader = CursusDataSource({"path": str(path), "subscribe": "t"}).reader(ROWS)
    [task] = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == 1


def test_a_reading_task_that_does_not_see_the_store_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Store.open(path, create=True) as store:
        store.create_topic("t")
        store.append("t", 0, [b"a"])
    reader = CursusDataSource({"path": str(path), "subscribe": "t"}).reader(ROWS)
    [task] = reader.partitions()
    shutil.move(path, tmp_path / "elsewhere")
    with pytest.raises(CursusError, match=r"LAYOUT_NOT_FOUND.*Does every node see.*on host '"):
        list(reader.read(task))


def test_the_page_names_what_the_package_needs() -> None:
    text = (ROOT / "pyproject.toml").read_text().partition("dependencies = [")[2].partition("]")[0]
    for name in re.findall(r'"(\w+)>=', text):
        assert name in PAGE, name
