"""Dates, times and durations of any year as text, and back.

Python's own stop at the year 9999; a column does not. The calendar is Gregorian for all years, as
in Spark and Arrow. Texts that name more than can be stored, such as nanoseconds, are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_DATE_TEXT = r"(?P<date>[+-]?[0-9]{4,7}-[0-9]{2}-[0-9]{2})"
_DATE = re.compile(_DATE_TEXT)
_TIME = re.compile(
    rf"{_DATE_TEXT}(?:[T ](?P<hour>[0-9]{{2}}):(?P<minute>[0-9]{{2}})"
    r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_INTERVAL = re.compile(
    r"(?i:INTERVAL) '(?P<sign>[+-]?)(?P<day>[0-9]{1,9}) (?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r":(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?' (?i:DAY TO SECOND)"
)
_SHORT_YEAR = re.compile(r"^-([0-9]{3})-")
_MOST = {"hour": 23, "minute": 59, "second": 59}
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# numpy keeps this number for "no time".
_FIRST_TEXT = "-290308-12-21T19:59:05.224192"


def dates_as_text(days: npt.NDArray[Any]) -> list[str]:
    """Days since 1970 as such as ``2026-11-01``."""
    return _texts(days.astype("<i8").view("<M8[D]"))


def times_as_text(micros: npt.NDArray[Any], zone: str) -> list[str]:
    """Microseconds since 1970 as such as ``2026-11-01T09:00:00.000000`` and the zone."""
    texts = _texts(micros.view("<M8[us]"))
    return [(_FIRST_TEXT if text == "NaT" else text) + zone for text in texts]


def _texts(times: npt.NDArray[Any]) -> list[str]:
    texts: list[str] = np.datetime_as_string(times).tolist()
    # numpy writes three digits of a year before 0.
    return [_SHORT_YEAR.sub(r"-0\1-", text) if text[0] == "-" else text for text in texts]


def interval_as_text(micros: int) -> str:
    """Microseconds as Spark's ``INTERVAL '1 02:03:04.5' DAY TO SECOND``, with six decimals."""
    sign = "-" if micros < 0 else ""
    days, rest = divmod(abs(micros), _DAY)
    seconds, fraction = divmod(rest, _SECOND)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"


def read_days(text: str) -> int | None:
    """The days since 1970 of a date, or None if the text is none."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return int(np.datetime64(text.removeprefix("+"), "D").astype(np.int64))
    except ValueError:
        return None


def read_micros(text: str) -> tuple[int, bool] | None:
    """The microseconds since 1970 of ISO 8601 text, and whether it names a zone.

    Without a zone the text is in UTC.
    """
    match = _TIME.fullmatch(text)
    days = read_days(match["date"]) if match else None
    clock = _clock(match) if match else None
    shift = _zone_seconds(match["zone"]) if match else None
    if match is None or days is None or clock is None or shift is None:
        return None
    return days * _DAY + clock - shift * _SECOND, match["zone"] is not None


def read_interval(text: str) -> int | None:
    """The microseconds of ``INTERVAL '1 02:03:04.5' DAY TO SECOND``."""
    match = _INTERVAL.fullmatch(text)
    clock = _clock(match) if match else None
    if match is None or clock is None:
        return None
    total = int(match["day"]) * _DAY + clock
    return -total if match["sign"] == "-" else total


def _clock(match: re.Match[str]) -> int | None:
    parts = {name: int(match[name] or 0) for name in _MOST}
    if any(parts[name] > most for name, most in _MOST.items()):
        return None
    seconds = (parts["hour"] * 60 + parts["minute"]) * 60 + parts["second"]
    return seconds * _SECOND + int((match["fraction"] or "").ljust(6, "0"))


def _zone_seconds(zone: str | None) -> int | None:
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 18 or minutes > 59:
        return None
    seconds = (hours * 60 + minutes) * 60
    return -seconds if zone[0] == "-" else seconds
