"""Spark over an object store with keys as options: prints all that a user may look at."""

from __future__ import annotations

import json
import logging
import pickle
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import cursus_spark
from cursus_spark.options.parse import parse_read_options
from storage_core import Store


def show(spark: SparkSession, url: str, storage: dict[str, str], place: str) -> None:
    """Write, read, stream and fail."""
    options = {f"storage.{name}": value for name, value in storage.items()}
    rows = spark.range(50).selectExpr("cast(id as string) as value", "id as n")
    rows.select("value").write.format("cursus").mode("append").options(topic="t", **options).save(
        url
    )
    found = spark.read.format("cursus").options(subscribe="t", **options).load(url)
    explain(found)
    print(found.count())
    source = spark.readStream.format("cursus").options(subscribe="t", **options).load(url)
    query = (
        source.select("value").writeStream.format("cursus").options(topic="u", **options)
        .option("checkpointLocation", f"{place}/checkpoint").queryName("copy")
        .trigger(availableNow=True).start(url)
    )  # fmt: skip
    query.awaitTermination()
    query.explain(True)
    print([each.json if hasattr(each, "json") else each for each in query.recentProgress])
    named = ", ".join(f"`{name}` '{text}'" for name, text in {"subscribe": "t", **options}.items())
    spark.sql(f"create temporary view v using cursus options (path '{url}', {named})")
    explain(spark.sql("select * from v"))
    print(spark.sql("select count(*) from v").collect())
    fail(lambda: found.select("nonsense").collect())
    fail(lambda: read(spark, "s3://bucket/nothing", options).collect())
    fail(lambda: read(spark, url, {**options, "storage.endpoint": "http://127.0.0.1:9"}).collect())
    fail(lambda: read(spark, url, {**options, "storage.nonsense": storage["token"]}).collect())
    fail(lambda: read(spark, url, {**options, "wrong": "x"}).collect())
    keep_pages(spark, Path(place, "pages"))
    parsed = parse_read_options({"path": url, "subscribe": "t", **options})
    print(parsed, repr(pickle.loads(pickle.dumps(parsed))))
    with Store.open(url, storage=storage) as store:
        print(store, repr(store.vfs), store.__class__, vars(store).keys())


def keep_pages(spark: SparkSession, directory: Path) -> None:
    """What Spark's own pages and its REST interface show of all this."""
    directory.mkdir()
    root = str(spark.sparkContext.uiWebUrl)
    application = f"api/v1/applications/{spark.sparkContext.applicationId}"
    paths = ["jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/"]
    paths += ["StreamingQuery/", f"{application}/environment", f"{application}/stages"]
    paths += [f"{application}/sql?details=true&planDescription=true&length=1000"]
    queries = json.loads(page(f"{root}/{application}/sql?length=1000"))
    paths += [f"SQL/execution/?id={query['id']}" for query in queries]
    assert len(queries) > 3
    for number, path in enumerate(paths):
        (directory / f"{number}.html").write_text(f"{path}\n{page(f'{root}/{path}')}")


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def read(spark: SparkSession, url: str, options: dict[str, str]) -> DataFrame:
    return spark.read.format("cursus").options(subscribe="t", **options).load(url)


def explain(frame: DataFrame) -> None:
    print(frame)
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.explain(mode)


def fail(call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except Exception as error:
        print("failed:", error, repr(error))
    else:
        raise AssertionError("it must fail")


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    # It shows every call of the driver to the JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    given = json.loads(sys.stdin.read())
    session = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0").config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2").config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", f"file://{given['place']}/events")
        .config("spark.eventLog.compress", "false").getOrCreate()
    )  # fmt: skip
    cursus_spark.register(session)
    show(session, given["url"], given["storage"], given["place"])
    session.stop()
    print("done")
