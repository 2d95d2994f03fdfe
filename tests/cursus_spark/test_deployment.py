"""``docs/deployment.md``: the zip on a real cluster, and executors that do not see the store."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.types import StructType

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from storage_core import Store
from tests.support.paths import ROOT
from tests.support.spark.cluster import cluster

PAGE = (ROOT / "docs" / "deployment.md").read_text()
ROWS = StructType().add("value", "string")
# The zip comes before the path by which the tests find the packages.
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
frame = spark.range(100).selectExpr("id", "string(id) AS text")
frame.write.format("cursus").options(topic="t", numPartitions=4).mode("append").save(sys.argv[1])
back = spark.read.format("cursus").option("subscribe", "t").load(sys.argv[1])
assert back.exceptAll(frame).isEmpty() and back.count() == 100
"""


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


def test_a_task_that_does_not_see_the_store_says_so_and_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = CursusDataSource({"path": str(path), "topic": "t"}).writer(ROWS, overwrite=False)
    shutil.move(path, tmp_path / "elsewhere")
    with pytest.raises(CursusError, match=r"LAYOUT_NOT_FOUND.*Does every node see.*on host '"):
        writer.write(iter(()))
    assert not path.exists()


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
