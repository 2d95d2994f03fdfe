"""Query an access log in SQL; the queries are in log_analytics.sql.

spark-submit --properties-file conf/spark-defaults.conf examples/log_analytics.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from string import Template

from pyspark.sql import SparkSession

from cursus_spark import register

QUESTIONS = Path(__file__).with_suffix(".sql")


def main(directory: Path) -> None:
    """Write an hour of requests, then run the statements of the file."""
    log = str(directory / "log")
    spark = SparkSession.builder.appName("log_analytics").getOrCreate()
    register(spark)
    write_requests(spark, log)
    question = ""
    for comment, statement in statements(QUESTIONS.read_text(), log=log):
        question = comment or question
        rows = spark.sql(statement)
        if rows.columns:
            print(question)
            rows.show(truncate=False)
    spark.stop()


def statements(text: str, **names: str) -> list[tuple[str, str]]:
    """Each statement with the comment above it, and with its ``${names}`` replaced."""
    found = []
    for part in Template(text).substitute(names).split(";\n"):
        lines = part.strip().splitlines()
        comment = " ".join(line[3:] for line in lines if line.startswith("-- "))
        statement = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if statement:
            found.append((comment, statement))
    return found


def write_requests(spark: SparkSession, log: str) -> None:
    """Write one request a second for an hour; from 09:30 to 09:35 many checkouts fail."""
    requests = (
        spark.range(3600)
        .selectExpr(
            "timestamp'2026-01-05 09:00:00Z' + make_dt_interval(0, 0, 0, id) AS timestamp",
            "concat('host-', id % 7) AS host",
            "element_at(array('/', '/', '/search', '/checkout'), int(id % 4 + 1)) AS path",
            "id BETWEEN 1800 AND 2099 AND id % 4 = 3 AND id % 3 <> 0 AS trouble",
            "5 + pmod(id * 7919, 97) + if(id % 4 = 3, 40, 0) AS ms",
        )
        .selectExpr(
            "host AS key",
            """to_json(named_struct('host', host, 'path', path, 'status', if(trouble, 503, 200),
                'ms', double(if(trouble, 2000, ms)))) AS value""",
            "timestamp",
        )
    )
    writer = requests.write.format("cursus").options(topic="access", numPartitions=2)
    writer.mode("append").save(log)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="cursus-analytics-") as folder:
            main(Path(folder))
