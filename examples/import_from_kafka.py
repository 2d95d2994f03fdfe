"""Copy a Kafka topic into a log, exactly once: run it again and again, it takes what is new.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 \\
        --properties-file conf/spark-defaults.conf examples/import_from_kafka.py \\
        --servers kafka:9092 --topic orders --partitions 6 \\
        --log /data/log --checkpoint /data/checkpoints/import

Key, value, headers, timestamp and partition are kept. Offsets start at 0 in the log, because
Kafka's may have gaps. The header ``kafka`` keeps a record's offset in Kafka.
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
    """Check what can be checked before Spark waits for minutes, then copy."""
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
            f"Spark does not know Kafka: start with --packages {PACKAGE}:{spark.version} ({error})"
        ) from None
    query = copy(rows, given.log, given.partitions, given.checkpoint)
    query.awaitTermination()
    print(f"copied {sum(progress.numInputRows for progress in query.recentProgress)} records")
    spark.stop()


def copy(rows: DataFrame, log: str, partitions: int, checkpoint: str) -> StreamingQuery:
    """A stream of Kafka's rows into the topic of the same name, up to what is there now."""
    return (
        as_records(rows)
        .writeStream.format("cursus")
        .option("numPartitions", partitions)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(log)
    )


def as_records(rows: DataFrame) -> DataFrame:
    """Rows of Spark's Kafka source as rows for ours.

    A record of Kafka without a value is a deletion mark for its key, and stays one: value null. The
    partition is kept, so records of one partition stay in their order.
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
    """Fail in seconds when nobody is there. Kafka's own client would go on trying for a minute."""
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
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Copy a Kafka topic into a log, exactly once.")
    parser.add_argument("--servers", required=True, help="host:port of brokers, by commas")
    parser.add_argument("--topic", required=True, help="the topic, there and here")
    parser.add_argument("--partitions", required=True, type=int, help="as many as it has in Kafka")
    parser.add_argument("--log", required=True, help="the directory of the log")
    parser.add_argument("--checkpoint", required=True, help="where the copy remembers its place")
    parser.add_argument("--per-batch", type=int, default=1_000_000, help="records at once at most")
    return parser.parse_args()


if __name__ == "__main__":
    main()
