"""Copy a Kafka topic into a log, exactly once. Run it again to copy new records.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \\
        --properties-file conf/spark-defaults.conf examples/import_from_kafka.py \\
        --servers kafka:9092 --topic orders --partitions 6 \\
        --log /data/log --checkpoint /data/checkpoints/import

Key, value, headers, timestamp and partition are kept. Offsets start at 0 in the log, because
Kafka's may have holes. The header ``kafka`` holds a record's offset in Kafka.
"""

from __future__ import annotations

import argparse
import socket

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cursus_spark import register

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_CANNOT_CONNECT_S = 5.0


def main() -> None:
    """Check the arguments before Spark waits for minutes, then copy."""
    given = arguments()
    require_broker(given.servers)
    spark = SparkSession.builder.appName("import_from_kafka").getOrCreate()
    register(spark)
    kafka = spark.readStream.format("kafka").options(
        subscribe=given.topic,
        startingOffsets="earliest",
        includeHeaders="true",
        maxOffsetsPerTrigger=given.per_batch,
    )
    try:
        rows = kafka.option("kafka.bootstrap.servers", given.servers).load()
    except AnalysisException as error:
        raise SystemExit(
            f"Spark has no Kafka source: start with --packages {PACKAGE}:{spark.version} ({error})"
        ) from None
    query = copy(rows, given.log, given.partitions, given.checkpoint)
    query.awaitTermination()
    print(f"copied {sum(progress.numInputRows for progress in query.recentProgress)} records")
    spark.stop()


def copy(rows: DataFrame, log: str, partitions: int, checkpoint: str) -> StreamingQuery:
    """Start a stream of Kafka's current rows into the topic with the same name."""
    return (
        as_records(rows)
        .writeStream.format("cursus")
        .option("numPartitions", partitions)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(log)
    )


def as_records(rows: DataFrame) -> DataFrame:
    """Rows of Spark's Kafka source as rows for a cursus topic.

    A tombstone stays a tombstone: its value is null. The partition is kept, so the records of one
    partition stay in order.
    """
    return rows.selectExpr(
        "topic",
        "partition",
        "key",
        "value",
        "timestamp",
        """array_append(coalesce(headers, array()), named_struct(
            'key', 'kafka', 'value', cast(concat(partition, '@', offset) AS binary))) AS headers""",
    )


def require_broker(servers: str) -> None:
    """Fail within seconds if no broker answers; Kafka's client would try for a minute."""
    refused = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit():
            raise SystemExit(f"--servers: expected host:port, got {server!r}")
        try:
            socket.create_connection((host, int(port)), timeout=_CANNOT_CONNECT_S).close()
            return
        except OSError as error:
            refused.append(f"{server.strip()} ({error})")
    raise SystemExit(f"no Kafka broker answers: {', '.join(refused)}. Check --servers.")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Copy a Kafka topic into a log, exactly once.")
    parser.add_argument("--servers", required=True, help="host:port of brokers, comma-separated")
    parser.add_argument("--topic", required=True, help="name of the topic in Kafka and in the log")
    parser.add_argument("--partitions", required=True, type=int, help="its partitions in Kafka")
    parser.add_argument("--log", required=True, help="the directory of the log")
    parser.add_argument("--checkpoint", required=True, help="directory of the checkpoint")
    parser.add_argument("--per-batch", type=int, default=1_000_000, help="most records per batch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
