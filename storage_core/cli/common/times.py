"""Points in time as people type them: ISO 8601, milliseconds since 1970, or an age."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

import click

from ...format.columns import MAX_TIMESTAMP, MIN_TIMESTAMP, microseconds

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNITS = {"ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6}
_UNITS |= {"d": 24 * _UNITS["h"], "w": 7 * 24 * _UNITS["h"]}
_ISO, _WORDS = "ISO 8601 (UTC if it has no zone)", "'now', or an age such as 90s, 2h, 7d"
HELP = f"{_ISO}, milliseconds since 1970, {_WORDS}"
HELP_BESIDE_OFFSETS = f"{_ISO}, {_WORDS}"
"""For options where a number is an offset."""


class When(NamedTuple):
    """A point in time: microseconds since 1970, or microseconds before now."""

    microseconds: int
    ago: bool = False

    def at(self, now_us: int) -> int:
        """Microseconds since 1970."""
        return now_us - self.microseconds if self.ago else self.microseconds


def parse_when(text: str) -> When:
    """A point in time from text.

    Raises:
        ValueError: the text is not a time; the message lists the forms that are.
    """
    age = _AGO.fullmatch(text)
    if text == "now":
        return When(0, ago=True)
    if age is not None:
        return When(int(float(age[1]) * _UNITS[age[2]]), ago=True)
    if re.fullmatch(r"-?\d+", text):
        found: int | None = int(text) * 1000
    else:
        try:
            found = microseconds(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            found = None
    if found is None or not MIN_TIMESTAMP <= found <= MAX_TIMESTAMP:
        raise ValueError(f"{text!r} is not a time. Use {HELP}.")
    return When(found)


def when_option(text: str) -> When:
    """``parse_when`` as the type of an option."""
    try:
        return parse_when(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
