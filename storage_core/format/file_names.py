"""Names of topics, groups and segment files; ``format`` and ``parse`` are inverses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import InvalidNameError

MAX_OFFSET = (1 << 63) - 1
LOG, IDX, TIMEIDX, STATS = ".log", ".idx", ".timeidx", ".stats"
MARKER, BROKEN = ".tomb", ".broken"
HINTS = (IDX, TIMEIDX, STATS)
"""What stands beside a log and can be built from it. It is removed before the log."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SUFFIXES = frozenset((LOG, *HINTS, MARKER))
_LAST_STEM = f"{MAX_OFFSET:020d}"
_RANGE_MARKER = re.compile(r"(\d{20})-(\d{20})\.tomb")
_SKIPPED = re.compile(r"(\d{20})-(\d{20})\.skipped")
REWRITE = ".rewrite"
"""A new version of a segment, until it replaces the old one."""


def is_name(name: object) -> bool:
    """Whether a topic or group may have this name: it is safe as a file name everywhere."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and name not in (".", "..")


def check_name(kind: str, name: str) -> str:
    """Return ``name`` when ``is_name`` allows it, else raise."""
    if not is_name(name):
        raise InvalidNameError(
            f"{kind} name {name!r} is not allowed. "
            "Use 1 to 249 characters out of A-Z a-z 0-9 . _ - (but not '.' or '..').",
        )
    return name


def check_no_case_clash(name: str, existing: list[str]) -> None:
    """Refuse a topic that differs from an existing one only in case: some file systems ignore case.

    Raises:
        InvalidNameError: such a topic exists.
    """
    for other in existing:
        if other != name and other.lower() == name.lower():
            raise InvalidNameError(
                f"topic name {name!r} differs from the existing topic {other!r} only in case. "
                "Choose another name."
            )


def segments_directory(topic: str, partition: int) -> str:
    """Directory of the segment files of a partition."""
    return f"topics/{topic}/{partition}/segments"


def segment_file(base: int, suffix: str) -> str:
    """``segment_file(7, ".log")`` is ``00000000000000000007.log``."""
    if not 0 <= base <= MAX_OFFSET:
        raise ValueError(f"segment base {base} is outside 0..2**63-1")
    return f"{base:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Base offset and suffix of a segment's file name, or None for an unrecognised file."""
    stem, suffix = name[:20], name[20:]
    if suffix not in _SUFFIXES or not (stem.isascii() and stem.isdigit()) or stem > _LAST_STEM:
        return None
    return int(stem), suffix


def range_marker_file(first: int, end: int) -> str:
    """Name of the marker of all segments whose base is ``first`` or more and below ``end``."""
    return f"{segment_file(first, '')}-{segment_file(end, MARKER)}"


def parse_range_marker(name: str) -> tuple[int, int] | None:
    """First base and end of a range marker's name, or None for any other."""
    match = _RANGE_MARKER.fullmatch(name)
    if match is None or max(match.groups()) > _LAST_STEM or match[1] >= match[2]:
        return None
    return int(match[1]), int(match[2])


def skipped_file(start: int, end: int) -> str:
    """Name of the file that says that the offsets from ``start`` to ``end`` are skipped."""
    return f"{segment_file(start, '')}-{segment_file(end, '.skipped')}"


def parse_skipped(name: str) -> tuple[int, int] | None:
    """First offset and end of the name of such a file, or None for any other."""
    match = _SKIPPED.fullmatch(name)
    if match is None or max(match.groups()) > _LAST_STEM or match[1] >= match[2]:
        return None
    return int(match[1]), int(match[2])


class SegmentFiles(NamedTuple):
    """The base offsets of a directory's files by suffix, and the unrecognised names."""

    logs: list[int]
    indexes: list[int]
    time_indexes: list[int]
    statistics: list[int]
    markers: list[int]
    unrecognised: list[str]


def parse_segment_files(names: Iterable[str]) -> SegmentFiles:
    """Parse all names of a directory, of which there may be 300,000."""
    stems: dict[str, list[str]] = {suffix: [] for suffix in _SUFFIXES}
    unrecognised = []
    for name in names:
        group = stems.get(name[20:])
        if group is None:
            unrecognised.append(name)
        else:
            group.append(name[:20])
    bases = {}
    for suffix, group in stems.items():
        together = "".join(group)
        if group and not (together.isascii() and together.isdigit() and max(group) <= _LAST_STEM):
            unrecognised += [
                stem + suffix for stem in group if not parse_segment_file(stem + suffix)
            ]
            group = [stem for stem in group if parse_segment_file(stem + suffix)]
        bases[suffix] = list(map(int, group))
    logs, indexes, times, statistics, markers = (bases[each] for each in (LOG, *HINTS, MARKER))
    return SegmentFiles(logs, indexes, times, statistics, markers, unrecognised)
