"""Write a topic, read it back by offset and by time, copy it with a stream.

spark-submit --properties-file conf/spark-defaults.conf examples/quickstart.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from cursus_spark import register


def main(directory: Path) -> None:
    """Run four short steps."""
    log, checkpoint = str(directory / "log"), str(directory / "checkpoint")
    spark = SparkSession.builder.appName("quickstart").getOrCreate()
    register(spark)  # not needed where the package is installed

    orders = spark.range(1000).selectExpr(
        "concat('customer-', id % 10) AS key",
        "to_json(named_struct('order', id, 'cents', id * 37 % 5000)) AS value",
        "timestamp'2026-01-05 09:00:00Z' + make_dt_interval(0, 0, id) AS timestamp",
    )
    writer = orders.write.format("cursus").option("topic", "orders").option("numPartitions", 4)
    writer.mode("append").save(log)
    print("1. wrote 1000 orders to the topic 'orders': 4 partitions, selected by key")

    everything = spark.read.format("cursus").option("subscribe", "orders").load(log)
    print("2. read back:", everything.count(), "records; three of them by their offsets:")
    three = (
        spark.read.format("cursus")
        .option("assign", '{"orders":[0]}')
        .option("startingOffsets", '{"orders":{"0":5}}')
        .option("endingOffsets", '{"orders":{"0":8}}')
        .schema("partition int, offset long, key string, value string")  # only what is needed
        .load(log)
    )
    three.show(truncate=False)

    late = (
        spark.read.format("cursus")
        .option("subscribe", "orders")
        .option("startingTimestamp", "2026-01-06T00:00:00Z")
        .load(log)
    )
    print("3. by time: since the second day there were", late.count(), "orders")

    query = (
        spark.readStream.format("cursus")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load(log)
        .selectExpr("key", "value", "timestamp")
        .writeStream.format("cursus")
        .option("topic", "copy")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(log)
    )
    query.awaitTermination()
    copied = spark.read.format("cursus").option("subscribe", "copy").load(log).count()
    print("4. a stream copied", copied, "records, each exactly once")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="cursus-quickstart-") as folder:
            main(Path(folder))
