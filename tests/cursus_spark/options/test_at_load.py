"""What ``load()`` refuses without the store, before Spark says whether to read or to stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cursus_spark.datasource import CursusDataSource
from cursus_spark.errors import CursusError
from cursus_spark.options.parse import check_at_load
from tests.support.spark.dataframes import Log, one_line_error
from tests.support.stores import make_store

READ = {"path": "/data/log", "subscribe": "orders"}
REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "an unknown name": (
        {"startingoffset": "earliest"},
        "[CURSUS_OPTION_UNKNOWN] Unknown option 'startingoffset'. Did you mean 'startingOffsets'?",
    ),
    "an unknown name like one of batches only": (
        {"endingoffset": "latest"},
        "[CURSUS_OPTION_UNKNOWN] Unknown option 'endingoffset'. Did you mean 'endingOffsets'?",
    ),
    "an unknown name like one of streams only": (
        {"maxoffsetspertriger": "1"},
        "[CURSUS_OPTION_UNKNOWN] Unknown option 'maxoffsetspertriger'. Did you mean "
        "'maxOffsetsPerTrigger'?",
    ),
    "no topics": ({"subscribe": None}, "[CURSUS_OPTION_MISSING] One of the following options"),
    "topics twice": ({"assign": '{"t":[0]}'}, "[CURSUS_OPTION_CONFLICT] Only one of the following"),
    "no path": ({"path": None}, "[CURSUS_OPTION_MISSING] Option 'path' must be specified"),
    "a path elsewhere": ({"path": "hdfs://b/log"}, "[CURSUS_OPTION_INVALID] Option 'path' must be"),
    "broken JSON of offsets": (
        {"startingOffsets": '{"orders":{"0":5}'},
        "[CURSUS_OFFSETS_INVALID] Option 'startingOffsets': expected earliest",
    ),
    "broken JSON of times": (
        {"startingOffsetsByTimestamp": "{"},
        "[CURSUS_OFFSETS_INVALID] Option 'startingOffsetsByTimestamp': expected JSON",
    ),
    "broken JSON of ends": (
        {"endingOffsets": "{"},
        "[CURSUS_OFFSETS_INVALID] Option 'endingOffsets': expected earliest",
    ),
    "broken JSON of partitions": (
        {"subscribe": None, "assign": '{"orders":0}'},
        "[CURSUS_OPTION_INVALID] Option 'assign': expected JSON",
    ),
    "no time": ({"startingTimestamp": "now"}, "[CURSUS_OPTION_INVALID] Option 'startingTimestamp'"),
    "a pattern that is none": (
        {"subscribe": None, "subscribePattern": "("},
        "[CURSUS_OPTION_INVALID] Option 'subscribePattern' must be",
    ),
    "no size": (
        {"maxBytesPerTrigger": "much"},
        "[CURSUS_OPTION_INVALID] Option 'maxBytesPerTrigger' must be a positive size",
    ),
    "no boolean": ({"includeHeaders": "yes"}, "[CURSUS_OPTION_INVALID] Option 'includeHeaders'"),
    "no codec, for the writes of a view": (
        {"compression": "snappy"},
        "[CURSUS_OPTION_INVALID] Option 'compression' must be one of none, lz4, zstd",
    ),
    "a minimum above the maximum": (
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
        "[CURSUS_OPTION_INVALID] Option 'minOffsetsPerTrigger' must be at most",
    ),
    "a group without its name": (
        {"startingOffsets": "group"},
        "[CURSUS_OPTION_MISSING] Option 'consumerGroup' must be specified",
    ),
    "an end before the start": (
        {"startingOffsets": '{"orders":{"0":2}}', "endingOffsets": '{"orders":{"0":1}}'},
        "[CURSUS_OFFSETS_INVALID] startingOffsets for orders-0 is 2, after endingOffsets, which",
    ),
    "a time before the other": (
        {"startingTimestamp": "2000", "endingTimestamp": "1000"},
        "[CURSUS_OFFSETS_INVALID] startingTimestamp is 1970-01-01T00:00:02Z, after",
    ),
    "the start of a stream and the end of a batch": (
        {"startingOffsets": "latest", "endingTimestamp": "1000"},
        "[CURSUS_OPTION_CONFLICT] Option 'startingOffsets' has 'latest', where only a stream can "
        "start, and option 'endingTimestamp' is for batches only. Remove one of them.",
    ),
    "the group of a stream and the end of a batch": (
        {"startingOffsets": "group", "consumerGroup": "g", "endingOffsets": "latest"},
        "[CURSUS_OPTION_CONFLICT] Option 'startingOffsets' has 'group'",
    ),
    "a partition that starts as in a stream and the end of a batch": (
        {"startingOffsets": '{"orders":{"0":-1}}', "endingOffsets": "latest"},
        "[CURSUS_OPTION_CONFLICT] Option 'startingOffsets' has 'latest'",
    ),
}
ACCEPTED: dict[str, dict[str, str]] = {
    "a batch": {"startingOffsets": "earliest", "endingOffsets": '{"orders":{"0":1}}'},
    "a batch with an end only": {"endingOffsets": "latest"},
    "a batch of JSON on both ends": {
        "startingOffsets": '{"orders":{"0":1}}',
        "endingOffsets": '{"orders":{"1":1}}',
    },
    "a batch by times": {"startingTimestamp": "1000", "endingTimestamp": "2000"},
    "a time before any end": {"startingTimestamp": "1000", "endingOffsets": "latest"},
    "a stream": {"startingOffsets": "latest", "maxOffsetsPerTrigger": "5"},
    "a stream of a group": {"startingOffsets": "group", "consumerGroup": "g"},
    "a view that is written too": {"compression": "zstd", "txnAppId": "a", "txnVersion": "1"},
    "a table that leaves path and topics to the query": {"provider": "cursus", "owner": "me"},
    "a table with a property that is no option": {"provider": "cursus", "comment": "c", "x": "y"},
}


def given(changes: dict[str, str | None]) -> dict[str, str]:
    return {key: text for key, text in {**READ, **changes}.items() if text is not None}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_query_can_use_is_refused(case: str) -> None:
    changes, expected = REFUSED[case]
    with pytest.raises(CursusError) as caught:
        check_at_load(given(changes))
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_some_query_can_use_is_accepted_without_a_warning(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    changes = ACCEPTED[case]
    check_at_load(changes if "provider" in changes else given({**changes}))
    assert not caplog.records


def test_a_table_is_refused_for_what_its_create_table_says() -> None:
    for wrong in ({"startingOffsets": "{"}, {"topic": "a", "subscribe": "b"}, {"starting": "1"}):
        key, text = next(iter(wrong.items()))
        with pytest.raises(CursusError):
            check_at_load({"provider": "cursus", f"option.{key.lower()}": text, **wrong})


IN_SPARK = ("an unknown name", "no topics", "topics twice", "broken JSON of offsets",
            "a minimum above the maximum", "an end before the start")  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("case", IN_SPARK)
@pytest.mark.parametrize("kind", ["read", "readStream"])
def test_load_itself_fails_in_batches_and_streams(log: Log, kind: str, case: str) -> None:
    """The directory does not exist: nothing looked at it."""
    changes, expected = REFUSED[case]
    options = given({**changes, "path": str(log.path)})
    reader: Any = getattr(log.spark, kind)
    loading = reader.format("cursus").options(**options)
    assert one_line_error(loading.load).startswith(expected)
    assert not log.path.exists()


@pytest.mark.matrix
def test_a_temporary_view_is_refused_when_it_is_made(log: Log) -> None:
    made = f"CREATE TEMP VIEW wrong_view USING cursus OPTIONS (path '{log.path}', subscribe ' ')"
    found = one_line_error(lambda: log.spark.sql(made))
    assert found.startswith("[CURSUS_OPTION_INVALID] No topics to subscribe to")


def columns_at_load(path: Path, **options: str) -> list[str]:
    return CursusDataSource({"path": str(path), **options}).schema().fieldNames()


def test_load_without_a_store_is_an_error_before_any_column_is_asked_for(tmp_path: Path) -> None:
    """With the columns of a records topic the next line would complain of a column instead."""
    missing = tmp_path / "lgo"
    make_store(tmp_path / "log").close()
    with pytest.raises(CursusError) as caught:
        columns_at_load(missing, subscribe="orders")
    assert str(caught.value).startswith(
        f"[CURSUS_LAYOUT_NOT_FOUND] {missing} does not exist. There is a store at {tmp_path}/log."
    )


@pytest.mark.parametrize("options", [{"topic": "orders"}, {"provider": "cursus", "topic": "t"}])
def test_what_may_be_written_first_needs_no_store(
    tmp_path: Path, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    make_store(tmp_path / "log").close()
    for name in ("missing", "log"):
        assert columns_at_load(tmp_path / name, **options)[:2] == ["key", "value"]
    assert not caplog.records


def test_load_of_a_topic_that_is_not_there_warns_of_its_columns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with make_store(tmp_path) as store:
        store.create_topic("orders")
    assert columns_at_load(tmp_path, subscribe="ordres")[:2] == ["key", "value"]
    [record] = caplog.records
    assert record.getMessage().startswith(
        f"Topic 'ordres' does not exist in {tmp_path}. Topics found: orders, t. Its columns are "
        "unknown, so this DataFrame has those of a records topic: key, value"
    )
    caplog.clear()
    assert columns_at_load(tmp_path, subscribe="orders")[:2] == ["key", "value"]
    assert columns_at_load(tmp_path, subscribePattern="o.*")[:2] == ["key", "value"]
    assert not caplog.records
