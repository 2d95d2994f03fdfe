"""A short program that needs the classes of Spark which the tests need, for ``.ci/quick-jvm``."""

from __future__ import annotations

import tempfile
from subprocess import Popen

from pyspark.sql import SparkSession

from cursus_spark import register


def use(spark: SparkSession, directory: str) -> None:
    """Write, read, aggregate and stream, as most tests do."""
    register(spark)
    log = f"{directory}/log"
    rows = spark.range(100).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    rows.write.format("cursus").option("topic", "a").mode("append").save(log)
    spark.read.format("cursus").option("subscribe", "a").load(log).createOrReplaceTempView("a")
    spark.sql("select partition, count(*), max(offset) from a group by partition").collect()
    stream = spark.readStream.format("cursus").option("subscribe", "a")
    sink = stream.option("startingOffsets", "earliest").load(log).select("value").writeStream
    sink = sink.format("cursus").option("topic", "b")
    sink = sink.option("checkpointLocation", f"{directory}/checkpoint")
    sink.trigger(availableNow=True).start(log).awaitTermination(60)


def main() -> None:
    """Use Spark, and wait until its JVM has ended: it keeps its classes at the very last."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm: Popen[bytes] = gateway.proc
    with tempfile.TemporaryDirectory() as directory:
        use(spark, directory)
        spark.stop()
        gateway.shutdown()
        if jvm.stdin is not None:
            jvm.stdin.close()
        jvm.wait(timeout=120)


if __name__ == "__main__":
    main()
