"""Literals as Spark reads them: numbers, texts, dates, times and intervals.

What Spark would round, cut or guess is refused: None instead of a value.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from decimal import Decimal

from .expressions import LiteralKind

MAX_DIGITS = 38
"""Digits of a decimal in Spark."""

_NUMBER = re.compile(
    r"(?P<plain>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?P<exponent>(?:[eE][+-]?[0-9]+)?)(?P<suffix>(?i:BD|[LSYDF])?)"
)
_LONGEST_NUMBER = 400
_BITS = {"L": 64, "S": 16, "Y": 8}
_ESCAPE = re.compile(r"""\\(.)|(''|\"\")""", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,6}))?)?"
    r"(?P<zone>Z| ?UTC|[+-][0-9]{2}:[0-9]{2})?)?"
)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r"}
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_MICROS = 1_000_000
_MAX_ZONE_MINUTES = 18 * 60
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_SECONDS = {"DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_MOST = {"HOUR": 23, "MINUTE": 59, "SECOND": 59}
_BETWEEN = {"HOUR": " ", "MINUTE": ":", "SECOND": ":"}


def read_number(sign: str, text: str) -> tuple[LiteralKind, int | Decimal | float] | None:
    """An integer, a decimal (``1.5``) or a double (``1.5e0``, ``1.5D``), as Spark types them."""
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > _LONGEST_NUMBER:
        return None
    plain, suffix = sign + match["plain"], match["suffix"].upper()
    if suffix in ("D", "F") or (match["exponent"] and suffix == ""):
        return _read_double(plain + match["exponent"], suffix)
    if "." not in plain and not match["exponent"] and suffix != "BD":
        return _read_integer(plain, suffix)
    number = Decimal(plain + match["exponent"]) if len(match["exponent"]) < 6 else None
    if number is None or suffix not in ("", "BD") or not _is_spark_decimal(number):
        return None
    return "decimal", number


def _read_integer(text: str, suffix: str) -> tuple[LiteralKind, int] | None:
    if len(text.lstrip("+-0")) > MAX_DIGITS:
        return None
    number, bits = int(text), _BITS.get(suffix)
    fits = bits is None or -(1 << bits - 1) <= number < 1 << bits - 1
    return ("integer", number) if fits else None


def _read_double(text: str, suffix: str) -> tuple[LiteralKind, float] | None:
    number = float(text)
    if suffix == "F":
        try:
            number = struct.unpack("f", struct.pack("f", number))[0]
        except OverflowError:
            return None
    return ("double", number) if math.isfinite(number) else None


def _is_spark_decimal(number: Decimal) -> bool:
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    return max(len(digits), scale, len(digits) - scale) <= MAX_DIGITS


def read_string(raw: str) -> str | None:
    """The text of a literal with its quotes, or None if an escape in it is not known.

    Two quotes inside stand for one, as in Spark since 4.0.
    """
    quote, inner = raw[0], raw[1:-1]
    if any(match[1] and match[1] not in _ESCAPES for match in _ESCAPE.finditer(inner)):
        return None

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return _ESCAPES[match[1]]
        return quote if match[2][0] == quote else match[2]

    found = _ESCAPE.sub(replace, inner)
    return None if _SURROGATE.search(found) else found


def read_binary(digits: str) -> bytes | None:
    """The bytes of hexadecimal digits, two each."""
    try:
        return None if " " in digits else bytes.fromhex(digits)
    except ValueError:
        return None


def read_date(text: str) -> int | None:
    """The days of ``2026-11-01`` since 1970."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return datetime.date(*map(int, match.groups())).toordinal() - _EPOCH
    except ValueError:
        return None


def read_timestamp(text: str) -> tuple[int, bool] | None:
    """The microseconds since 1970 of a date with or without time, and whether a zone is named.

    Without a zone the text is in UTC.
    """
    match = _TIME.fullmatch(text)
    days = read_date(match["date"]) if match else None
    if match is None or days is None:
        return None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    offset = _zone_minutes(match["zone"])
    if hour > 23 or minute > 59 or second > 59 or offset is None:
        return None
    seconds = days * 86_400 + hour * 3_600 + (minute - offset) * 60 + second
    fraction = int((match["fraction"] or "").ljust(6, "0"))
    return seconds * _MICROS + fraction, match["zone"] is not None


def _zone_minutes(zone: str | None) -> int | None:
    if zone is None or zone.strip() in ("Z", "UTC"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    total = hours * 60 + minutes
    if minutes > 59 or total > _MAX_ZONE_MINUTES:
        return None
    return -total if zone[0] == "-" else total


def read_interval(text: str, first: str, last: str) -> int | None:
    """The microseconds of ``INTERVAL '1 02:03:04.5' DAY TO SECOND``, or of one unit alone."""
    if first not in _UNITS or last not in _UNITS or _UNITS.index(first) > _UNITS.index(last):
        return None
    units = _UNITS[_UNITS.index(first) : _UNITS.index(last) + 1]
    pattern = "(?P<sign>[+-]?)(?P<first>[0-9]{1,18})"
    for unit in units[1:]:
        pattern += f"{_BETWEEN[unit]}(?P<{unit}>[0-9]{{1,2}})"
    if last == "SECOND":
        pattern += r"(?:\.(?P<fraction>[0-9]{1,6}))?"
    match = re.fullmatch(pattern, text)
    if match is None or any(int(match[unit]) > _MOST[unit] for unit in units[1:]):
        return None
    seconds = int(match["first"]) * _SECONDS[first]
    seconds += sum(int(match[unit]) * _SECONDS[unit] for unit in units[1:])
    fraction = match["fraction"] if last == "SECOND" else None
    total = seconds * _MICROS + int((fraction or "").ljust(6, "0"))
    total = -total if match["sign"] == "-" else total
    return total if -(2**63) <= total < 2**63 else None
