"""Where a query starts and ends, as users write it: words, JSON, timestamps.

The text of an option becomes an ``OffsetSpec``: a default ``Bound``, and bounds of single topics
and partitions. The planner asks it for the bound of each partition that exists.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from ..errors import CursusError, cursus_error, shown
from .read_options import EARLIEST, EPOCH, GROUP, LATEST, MAX_OFFSET, Bound, OffsetSpec

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"}}'
_TIME_WORDS = "milliseconds since 1970 or an ISO-8601 time such as 2026-01-01T00:00:00Z"
_MAX_PARTITION = (1 << 31) - 1
_MAX_MILLISECONDS = 253_402_300_799_999  # the last of year 9999, as far as Spark can print
_MIN_MICROSECONDS = -62_135_596_800_000_000  # the first of year 1
_LAST_GUESS = 4_102_444_800_000  # year 2100: how late a time in a wrong unit is taken for a time


class _TimeOutOfRangeError(ValueError):
    """A number that is no time in milliseconds; the text names the unit it seems to have."""

    def __init__(self, value: int) -> None:
        text = f"{shown(value)} is not a time in milliseconds from 1970 to 9999"
        for unit, factor in (("microseconds", 1000), ("nanoseconds", 1_000_000)):
            if _MAX_MILLISECONDS < value < _LAST_GUESS * factor:
                text += f". It looks like {unit}: write {value // factor}"
                break
        super().__init__(text)


def parse_offsets(option: str, text: str, *, default: Bound, group: bool = False) -> OffsetSpec:
    """Parse ``startingOffsets`` or ``endingOffsets``.

    Args:
        option: Name of the option, for messages and for the spec.
        text: A word, or JSON that may leave partitions out.
        default: The bound of partitions the JSON leaves out.
        group: Whether the word ``group`` is allowed.
    """
    words = {"earliest": EARLIEST, "latest": LATEST} | ({"group": GROUP} if group else {})
    word = words.get(text.strip().lower())
    if word:
        return OffsetSpec(option, word)
    expected = f"expected earliest, latest or JSON such as {_OFFSETS_EXAMPLE}"
    return _parse_json(option, text, default, _offset_bound, expected)


def parse_times(option: str, text: str, *, default: Bound) -> OffsetSpec:
    """Parse ``startingOffsetsByTimestamp`` or ``endingOffsetsByTimestamp``."""
    return _parse_json(
        option, text, default, _time_bound, f"expected JSON such as {_TIMES_EXAMPLE}"
    )


def parse_time(option: str, text: str) -> OffsetSpec:
    """Parse ``startingTimestamp`` or ``endingTimestamp``: one time for everything."""
    try:
        bound = _time_bound(text.strip(), of_topic=False)
    except _TimeOutOfRangeError as error:
        raise cursus_error("OPTION_INVALID", f"Option '{option}': {error}.") from None
    if bound is None:
        raise cursus_error(
            "OPTION_INVALID", f"Option '{option}' must be {_TIME_WORDS}, got {shown(text)}."
        )
    return OffsetSpec(option, bound)


def check_batch_range(start: OffsetSpec, end: OffsetSpec) -> None:
    """Refuse a batch that starts at latest, ends at earliest, or ends before it starts."""
    for name, bound in start.bounds().items():
        if bound == LATEST:
            raise cursus_error(
                "START_LATEST_IN_BATCH",
                f"startingOffsets{_of(name)} can't be latest in a batch query. Use earliest, an "
                "offset, or readStream.",
            )
    for name, bound in end.bounds().items():
        if bound == EARLIEST:
            raise cursus_error(
                "END_EARLIEST_IN_BATCH",
                f"endingOffsets{_of(name)} can't be earliest in a batch query. Use latest or an "
                "offset.",
            )
    check_order(start, end)


def check_order(start: OffsetSpec, end: OffsetSpec) -> None:
    """Refuse a range that ends before it starts."""
    _check_order("", start, start.default, end, end.default)
    for topic in sorted({*start.topics, *end.topics}):
        low, high = start.topics.get(topic, start.default), end.topics.get(topic, end.default)
        _check_order(topic, start, low, end, high)
    for topic, number in sorted({*start.partitions, *end.partitions}):
        low, high = start.bound(topic, number), end.bound(topic, number)
        _check_order(f"{topic}-{number}", start, low, end, high)


def load_json(text: str) -> Any:
    """Parse JSON strictly.

    Raises:
        ValueError: not JSON, a key twice in one object, NaN, or nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_partition(text: str) -> int:
    """A partition number from a JSON key: decimal digits.

    Raises:
        ValueError: anything else, such as ``-1``, ``01`` or ``2147483648``.
    """
    if not re.fullmatch(r"0|[1-9][0-9]{0,9}", text) or int(text) > _MAX_PARTITION:
        raise ValueError(f"{text!r} is not a partition number")
    return int(text)


def _of(name: str) -> str:
    return f" for {name}" if name else ""


def _check_order(name: str, start: OffsetSpec, low: Bound, end: OffsetSpec, high: Bound) -> None:
    if low.kind == high.kind and low.value > high.value:
        raise cursus_error(
            "OFFSETS_INVALID",
            f"{start.option}{_of(name)} is {low}, after {end.option}, which is {high}. "
            "Set a start before the end.",
        )


def _parse_json(option: str, text: str, default: Bound, parse: Any, expected: str) -> OffsetSpec:
    topics: dict[str, Bound] = {}
    partitions: dict[tuple[str, int], Bound] = {}
    try:
        found = load_json(text)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        for topic, item in found.items():
            if not topic:
                raise ValueError("a topic without a name")
            if not isinstance(item, dict):
                topics[topic] = _required(parse(item, of_topic=True))
                continue
            for number, value in item.items():
                if number == "*":
                    topics[topic] = _required(parse(value, of_topic=True))
                    continue
                key = (topic, parse_partition(number))
                partitions[key] = _required(parse(value, of_topic=False))
    except _TimeOutOfRangeError as error:
        raise cursus_error("OFFSETS_INVALID", f"Option '{option}': {error}.") from None
    except ValueError:
        raise _offsets_error(option, text, expected) from None
    return OffsetSpec(option, default, topics, partitions, is_partial=True)


def _offsets_error(option: str, text: str, expected: str) -> CursusError:
    return cursus_error("OFFSETS_INVALID", f"Option '{option}': {expected}, got {shown(text)}.")


def _required(bound: Bound | None) -> Bound:
    if bound is None:
        raise ValueError("not a bound")
    return bound


def _offset_bound(value: object, *, of_topic: bool) -> Bound | None:
    if of_topic:
        words = {"earliest": EARLIEST, "latest": LATEST}
        return words.get(value.strip().lower()) if isinstance(value, str) else None
    if not isinstance(value, int) or isinstance(value, bool) or not -2 <= value <= MAX_OFFSET:
        return None
    return {-1: LATEST, -2: EARLIEST}.get(value) or Bound("offset", value)


def _time_bound(value: object, *, of_topic: bool) -> Bound | None:
    del of_topic  # a time is valid for topics and for partitions
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,40}", value):
            return _iso_bound(value)
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if value == MAX_OFFSET:
        return Bound("timestamp", value)
    if not 0 <= value <= _MAX_MILLISECONDS:
        raise _TimeOutOfRangeError(value)
    return Bound("timestamp", value * 1000)


def _iso_bound(text: str) -> Bound | None:
    try:
        time = datetime.datetime.fromisoformat(text)
        aware = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    microseconds = (aware - EPOCH) // datetime.timedelta(microseconds=1)
    # A time zone can move the time out of the years that can be printed.
    printable = _MIN_MICROSECONDS <= microseconds < (_MAX_MILLISECONDS + 1) * 1000
    return Bound("timestamp", microseconds) if printable else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")
