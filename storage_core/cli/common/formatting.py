"""Numbers, sizes, times and bytes as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """A number of bytes in the largest unit that fits: ``1.5 MiB``."""
    unit = 0
    while count >= 1024 and unit + 1 < len(_UNITS):
        count /= 1024
        unit += 1
    digits = 0 if unit == 0 or count >= 100 else 1
    return f"{count:.{digits}f} {_UNITS[unit]}"


def number(value: int | None) -> str:
    """A number with a comma between thousands; a dash for None."""
    return "–" if value is None else f"{value:,}"


def iso(moment_us: int) -> str:
    """Microseconds since 1970 as ISO 8601, which ``parse_when`` reads back."""
    return as_iso(_EPOCH + timedelta(microseconds=moment_us))


def as_iso(moment: datetime) -> str:
    """A UTC time as ISO 8601, to the microsecond."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"


def moment(moment_us: int | None) -> str:
    """Microseconds since 1970 as a date and time to the second; a dash for None."""
    return "–" if moment_us is None else iso(moment_us)[:19].replace("T", " ") + "Z"


def duration(microseconds: float) -> str:
    """A length of time in one unit: ``3.5 h``."""
    seconds = microseconds / 1e6
    for limit, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{seconds / limit:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def plural(count: int, noun: str) -> str:
    """``1 segment``, ``2 segments``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings of a topic as ``--set`` takes them: ``compression=zstd, segment_ms=1000``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def printable(data: bytes | None) -> str:
    """Bytes as one line of text with control characters and bytes that are not UTF-8 escaped.

    Raw control characters in a record could change the state of the terminal.
    """
    if data is None:
        return "–"
    text = data.decode("utf-8", errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
