"""The engine reads DDL as Spark's own parser does."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from cursus_spark.typed.spark_types import arrow_fields, struct_type
from storage_core.errors import StorageError
from storage_core.schema.ddl import parse_ddl, to_ddl
from storage_core.schema.fields import from_arrow

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

SAME = [
    "id BIGINT NOT NULL, tags ARRAY<STRING>, s STRUCT<a: INT>",
    "a BOOLEAN, b TINYINT, c BYTE, d SMALLINT, e SHORT, f INT, g INTEGER, h BIGINT, i LONG",
    "a FLOAT, b REAL, c DOUBLE, d DATE, e TIMESTAMP, f TIMESTAMP_NTZ, g TIMESTAMP_LTZ, h BINARY",
    "a DECIMAL, b DEC(5), c NUMERIC(38, 38), d DECIMAL(5,2), v VOID, w VARIANT",
    "a STRING, b STRING COLLATE unicode_ci, c STRING COLLATE UTF8_BINARY, d STRING COLLATE de",
    "a CHAR(5), b VARCHAR(10), c CHARACTER(1)",
    "a INTERVAL DAY, b INTERVAL DAY TO HOUR, c INTERVAL DAY TO SECOND, d INTERVAL MINUTE TO SECOND",
    "a STRUCT<>, b STRUCT<x INT, y: STRING NOT NULL, `z z`: ARRAY<MAP<INT, STRUCT<q: VARIANT>>>>",
    "  `a.b`   int ,\n\t`c``d` map<string,array<int>>\n",
    "date DATE, `select` INT, order INT, interval INTERVAL DAY, null INT, array ARRAY<INT>",
    "s STRUCT<a: INT NOT NULL> NOT NULL, _x INT, x1 INT",
]
REFUSED = [
    "id",
    "id BIGNIT",
    "id INT,",
    "id INT NOT",
    "a b c",
    "a ARRAY<INT",
    "a ARRAY<INT NOT NULL>",
    "a MAP<INT>",
    "a DECIMAL(39)",
    "a DECIMAL(3,4)",
    "a CHAR",
    "a INTERVAL SECOND TO DAY",
    "a `INT`",
    "a INT; b INT",
    "a.b INT",
]


@pytest.mark.parametrize("text", SAME)
def test_columns_are_those_of_spark(text: str) -> None:
    expected = StructType.fromDDL(text)
    assert isinstance(expected, StructType)
    fields = parse_ddl(text)
    assert fields == from_arrow(*arrow_fields(expected))
    if "CHAR" not in text:  # Spark shows char and varchar as strings, except in DDL
        assert struct_type(fields) == expected


@pytest.mark.parametrize("text", SAME)
def test_spark_reads_what_is_written(text: str) -> None:
    assert StructType.fromDDL(to_ddl(parse_ddl(text))) == StructType.fromDDL(text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_spark_refuses_is_refused(text: str) -> None:
    with pytest.raises(PySparkException):
        StructType.fromDDL(text)
    with pytest.raises(StorageError):
        parse_ddl(text)
