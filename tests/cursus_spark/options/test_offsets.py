"""Offsets as users write them, positions as checkpoints keep them, and shares of a limit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursus_spark.errors import CursusError
from cursus_spark.options import offsets as o
from cursus_spark.options.read_options import EARLIEST, GROUP, LATEST, Bound, OffsetSpec, iso_time
from cursus_spark.read.backlog_shares import share_by_backlog
from cursus_spark.stream.position import StreamPosition, SymbolicStart, parse_stream_offset

NEW_YEAR = 1_767_225_600_000_000  # 2026 in microseconds


def parse(text: str, *, group: bool = False) -> OffsetSpec:
    return o.parse_offsets("startingOffsets", text, default=EARLIEST, group=group)


def failure(parser: Any, text: str) -> CursusError | None:
    try:
        parser("startingOffsets", text, default=LATEST)
    except CursusError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("text", "bound"), [("earliest", EARLIEST), ("latest", LATEST), (" Latest ", LATEST)]
)
def test_words(text: str, bound: Bound) -> None:
    assert parse(text) == OffsetSpec("startingOffsets", bound)


def test_json_may_leave_partitions_out() -> None:
    spec = parse('{"a":{"0":23,"1":-1,"2":-2},"b":"latest","c":{}}')
    assert spec.bound("a", 0) == Bound("offset", 23)
    assert spec.bound("a", 1) == LATEST
    assert spec.bound("a", 2) == EARLIEST
    assert spec.bound("a", 3) == spec.default == EARLIEST
    assert spec.bound("b", 7) == LATEST
    assert spec.bound("d", 0) == EARLIEST
    assert spec.named_topics() == {"a", "b"}


def test_a_star_is_the_default_of_a_topic() -> None:
    spec = parse('{"a":{"0":23,"*":"latest"},"b":{"0":1},"c":"earliest"}')
    assert spec.bound("a", 0) == Bound("offset", 23)
    assert spec.bound("a", 7) == spec.topics["a"] == LATEST
    places = [("a", 0), ("a", 7), ("b", 0), ("b", 1), ("c", 0), ("d", 0)]
    assert [where for where in places if spec.leaves_out(*where)] == [("b", 1), ("d", 0)]
    assert not parse("latest").leaves_out("a", 0)
    times = '{"a":{"0":1767225600000,"*":"2026-01-01"}}'
    by_time = o.parse_times("startingOffsetsByTimestamp", times, default=LATEST)
    assert by_time.bound("a", 3) == by_time.bound("a", 0)


def test_group_is_a_word_only_where_allowed() -> None:
    assert parse("group", group=True).default == GROUP
    with pytest.raises(CursusError):
        parse("group")


@pytest.mark.parametrize(
    "text",
    [
        "", "first", "5", "null", "[]", "{", '{"a":5}', '{"a":null}', '{"a":"group"}',
        '{"a":{"0":"earliest"}}', '{"a":{"0":-3}}', '{"a":{"*":5}}',
        '{"a":{"0":1.5}}', '{"a":{"0":true}}',
        '{"a":{"0":9223372036854775808}}', '{"a":{"-1":0}}', '{"a":{"01":0}}', '{"a":{"x":0}}',
        '{"a":{"٣":0}}', '{"a":{"2147483648":0}}', '{"a":{"0":1,"0":2}}', '{"a":{},"a":{}}',
        '{"":{"0":1}}', '{"a":{"0":NaN}}', '{"a":{"0":' + "9" * 5000 + "}}",
        '{"a":' * 100_000,
    ],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CursusError) as caught:
        parse(text)
    shown = text if len(text) <= 200 else text[:200] + "…"
    assert str(caught.value) == (
        "[CURSUS_OFFSETS_INVALID] Option 'startingOffsets': expected earliest, latest or JSON such "
        f'as {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}}, got \'{shown}\'.'
    )


@given(st.text() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
).map(json.dumps))  # fmt: skip
def test_any_text_is_a_spec_or_a_clear_error(text: str) -> None:
    for parser in (o.parse_offsets, o.parse_times):
        error = failure(parser, text)
        if error:
            assert error.condition == "OFFSETS_INVALID"
            assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1767225600000", NEW_YEAR),
        ("0", 0),
        ("2026-01-01", NEW_YEAR),
        ("2026-01-01T00:00:00", NEW_YEAR),
        ("2026-01-01T00:00:00Z", NEW_YEAR),
        (" 2026-01-01 01:00:00+01:00 ", NEW_YEAR),
        ("2026-01-01T00:00:00.000001Z", NEW_YEAR + 1),
        ("1969-12-31T23:59:59Z", -1_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
    ],
)
def test_times(text: str, microseconds: int) -> None:
    assert o.parse_time("startingTimestamp", text).default == Bound("timestamp", microseconds)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.5", "2026-13-01", "2026-01-01T25:00:00",
     "0001-01-01T00:00:00+05:00", "9999-12-31T23:00:00-05:00", "tomorrow"],
)  # fmt: skip
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(CursusError) as caught:
        o.parse_time("endingTimestamp", text)
    assert str(caught.value) == (
        "[CURSUS_OPTION_INVALID] Option 'endingTimestamp' must be milliseconds since 1970 or an "
        f"ISO-8601 time such as 2026-01-01T00:00:00Z, got '{text}'."
    )


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (-1, ""),
        (253_402_300_800_000, ". It looks like microseconds: write 253402300800"),
        (1_767_225_600_000_000, ". It looks like microseconds: write 1767225600000"),
        (1_767_225_600_000_000_000, ". It looks like nanoseconds: write 1767225600000"),
        ((1 << 63) - 2, ""),
        (10**30, ""),
    ],
)
def test_times_out_of_range_name_the_likely_unit(value: int, hint: str) -> None:
    text = f"'{value}' is not a time in milliseconds from 1970 to 9999{hint}."
    with pytest.raises(CursusError) as caught:
        o.parse_time("endingTimestamp", str(value))
    assert str(caught.value) == f"[CURSUS_OPTION_INVALID] Option 'endingTimestamp': {text}"
    option = "endingOffsetsByTimestamp"
    for written in (f'{{"a":{{"0":{value}}}}}', f'{{"a":"{value}"}}'):
        with pytest.raises(CursusError) as caught:
            o.parse_times(option, written, default=LATEST)
        assert str(caught.value) == f"[CURSUS_OFFSETS_INVALID] Option '{option}': {text}"


def test_the_largest_long_is_a_time_after_every_record() -> None:
    largest = (1 << 63) - 1
    whole = o.parse_time("endingTimestamp", str(largest))
    single = o.parse_times(
        "endingOffsetsByTimestamp", f'{{"a":{{"0":{largest}}}}}', default=EARLIEST
    )
    assert whole.default == single.bound("a", 0) == Bound("timestamp", largest)
    assert whole.describe() == str(largest)
    o.check_batch_range(o.parse_time("startingTimestamp", "2026-01-01"), whole)


def test_times_by_partition_and_topic() -> None:
    text = '{"a":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"},"b":"2026-01-01"}'
    spec = o.parse_times("startingOffsetsByTimestamp", text, default=EARLIEST)
    expected = Bound("timestamp", NEW_YEAR)
    assert spec.bound("a", 0) == spec.bound("a", 1) == spec.bound("b", 4) == expected
    assert spec.bound("a", 2) == EARLIEST


@pytest.mark.parametrize("text", ["latest", '{"a":{"0":"x"}}', '{"a":[1]}'])
def test_other_times_by_partition_are_refused(text: str) -> None:
    with pytest.raises(CursusError) as caught:
        o.parse_times("startingOffsetsByTimestamp", text, default=EARLIEST)
    assert str(caught.value) == (
        "[CURSUS_OFFSETS_INVALID] Option 'startingOffsetsByTimestamp': expected JSON such as "
        '{"topicA":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"}}, got ' + f"'{text}'."
    )


def test_a_spec_over_another_takes_from_it_what_it_does_not_name() -> None:
    times = o.parse_times("byTime", '{"a":0,"b":{"1":0}}', default=EARLIEST)
    spec = times.over(parse('{"a":{"0":5},"b":{"0":6,"1":7},"c":"latest"}'))
    zero = Bound("timestamp", 0)
    assert [spec.bound("a", 0), spec.bound("b", 0), spec.bound("b", 1)] == [
        zero, Bound("offset", 6), zero,
    ]  # fmt: skip
    assert (spec.bound("c", 0), spec.bound("d", 0)) == (LATEST, EARLIEST)


def test_iso_time_is_short() -> None:
    assert iso_time(NEW_YEAR) == "2026-01-01T00:00:00Z"
    assert iso_time(NEW_YEAR + 1500) == "2026-01-01T00:00:00.001500Z"


def test_describe_is_stable() -> None:
    assert parse("latest").describe() == "latest"
    text = '{"b":{"1":-2,"0":3},"a":"latest"}'
    assert parse(text).describe() == 'earliest {"a": "latest", "b-0": "3", "b-1": "earliest"}'


ids = st.dictionaries(st.text(min_size=1), st.uuids().map(str), max_size=4)
positions = st.dictionaries(
    st.text(min_size=1),
    st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=4),
    max_size=4,
)


@given(st.builds(StreamPosition, ids, positions, st.none() | positions))
def test_positions_survive_json(position: StreamPosition) -> None:
    assert StreamPosition.from_json(position.to_json()) == position
    assert parse_stream_offset(position.to_dict()) == position
    compact: dict[str, Any] = {"sort_keys": True, "separators": (",", ":")}
    assert position.to_json() == json.dumps(position.to_dict(), **compact)


def test_position_json_is_pinned() -> None:
    position = StreamPosition({"orders": "u"}, {"orders": {10: 5, 2: 7}}, {"orders": {2: 0}})
    assert position.to_json() == (
        '{"from":{"orders":{"2":0}},"id":{"orders":"u"},"pos":{"orders":{"10":5,"2":7}},"v":1}'
    )
    assert position.position("orders", 10) == 5
    assert position.position("orders", 3) is None
    assert "from" not in StreamPosition({}, {}).to_dict()


def test_symbolic_start() -> None:
    start = SymbolicStart("latest")
    assert start.to_json() == '{"start":"latest","v":1}'
    assert parse_stream_offset(start.to_dict()) == parse_stream_offset(start.to_json()) == start
    with pytest.raises(CursusError, match="CURSUS_CHECKPOINT_INVALID"):
        StreamPosition.from_json(start.to_json())


@pytest.mark.parametrize(
    "text",
    ["", "3", "{}", '{"v":1}', '{"v":true,"id":{},"pos":{}}', '{"v":1,"id":{}}', '{"v":0}',
     '{"v":1,"id":[],"pos":{}}', '{"v":1,"id":{"a":1},"pos":{}}', '{"v":1,"id":{},"pos":{"a":3}}',
     '{"v":1,"id":{},"pos":{"a":{"x":3}}}', '{"v":1,"id":{},"pos":{"a":{"0":-1}}}',
     '{"v":1,"id":{},"pos":{"a":{"0":1.0}}}', '{"v":1,"id":{},"pos":{},"more":1}',
     '{"v":1,"start":3}', '{"orders":{"0":5}}'],
)  # fmt: skip
def test_other_offsets_are_refused(text: str) -> None:
    with pytest.raises(CursusError) as caught:
        parse_stream_offset(text)
    assert str(caught.value) == (
        "[CURSUS_CHECKPOINT_INVALID] The checkpoint contains an offset that the cursus source "
        f"did not write: '{text}'. Start with a new checkpoint."
    )


def test_an_offset_of_a_newer_version_says_so() -> None:
    with pytest.raises(CursusError, match="newer version") as caught:
        parse_stream_offset('{"v":2,"what":"ever"}')
    assert caught.value.condition == "CHECKPOINT_INVALID"


@given(
    st.dictionaries(st.integers(0, 50), st.integers(-2, 1000) | st.just(2**62), max_size=20),
    st.integers(1, 3000) | st.just(2**61),
)
def test_shares_are_fair(backlogs: dict[int, int], limit: int) -> None:
    shares = share_by_backlog(backlogs, limit)
    waiting = {key: backlog for key, backlog in backlogs.items() if backlog > 0}
    total = sum(waiting.values())
    assert list(shares) == list(backlogs)
    for key, share in shares.items():
        assert (1 if key in waiting else 0) <= share <= max(backlogs[key], 0)
    assert sum(shares.values()) == max(min(limit, total), len(waiting))
    if total > limit:
        for key, backlog in waiting.items():
            assert shares[key] <= max(1, -(-limit * backlog // total)), "more than its part"


def test_shares_by_example() -> None:
    assert share_by_backlog({"a": 100, "b": 10, "c": 0}, 22) == {"a": 20, "b": 2, "c": 0}
    assert share_by_backlog({"a": 1000, "b": 1}, 10) == {"a": 9, "b": 1}
    assert share_by_backlog({"a": 5, "b": 5, "c": 5}, 2) == {"a": 1, "b": 1, "c": 1}
    assert share_by_backlog({"a": 3}, 10) == {"a": 3}
    assert share_by_backlog({}, 10) == {}
