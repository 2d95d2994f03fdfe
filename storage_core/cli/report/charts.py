"""The report's charts as inline SVG, coloured by the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ..common.formatting import moment, number, plural, size
from ..inspect.size_strips import Axis
from ..inspect.store_facts import PartitionFacts, SegmentFacts

_WIDTH = 880
_LEFT, _RIGHT = 30, 0
_SMALL, _TOP, _FLOOR = 420, 18, 130
_ROW, _ROW_GAP = 18, 6
_NARROW = 2.0
MOST_ROWS = 64


class Bar(NamedTuple):
    """One bar of a chart and its tooltip."""

    value: float
    title: str


def timeline(partitions: Sequence[PartitionFacts], axis: Axis) -> str:
    """A row for each partition with a block for each segment, from its first time to its last."""
    rows = partitions[:MOST_ROWS]
    height = len(rows) * (_ROW + _ROW_GAP) + 22
    parts = []
    for number_of_row, partition in enumerate(rows):
        top = number_of_row * (_ROW + _ROW_GAP)
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">'
            f"{partition.partition}</text>"
            f'<rect class="row" x="{_LEFT}" y="{top}" width="{_inner()}" height="{_ROW}" rx="3"/>'
        )
        parts += [_block(segments, axis, top) for segments in _merged(partition.segments, axis)]
    low, high = axis.ends
    parts.append(_ends(_LEFT, _WIDTH - _RIGHT, height - 5, low, high))
    return _svg(_WIDTH, height, "Segments of each partition over time", parts)


def columns(bars: Sequence[Bar], low: str, high: str, most: str, label: str, kind: str) -> str:
    """A bar chart; ``low`` and ``high`` label the axis, ``most`` the tallest bar."""
    tallest = max((bar.value for bar in bars), default=0) or 1
    step = _SMALL / max(1, len(bars))
    parts = [f'<text class="tick" x="0" y="{_TOP - 5}">{escape(most)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = _FLOOR - share * (_FLOOR - _TOP)
        parts.append(f'<line class="grid" x1="0" x2="{_SMALL}" y1="{y}" y2="{y}"/>')
    for place, bar in enumerate(bars):
        if bar.value > 0:
            tall = max(1.5, bar.value / tallest * (_FLOOR - _TOP))
            parts.append(
                f'<rect class="{kind}" x="{place * step + 0.5:.1f}" y="{_FLOOR - tall:.1f}" '
                f'width="{max(1.0, step - 1.5):.1f}" height="{tall:.1f}" rx="1.5">'
                f"<title>{escape(bar.title)}</title></rect>"
            )
    parts.append(_ends(0, _SMALL, _FLOOR + 17, low, high))
    return _svg(_SMALL, _FLOOR + 22, label, parts)


def share_bar(share: float, label: str) -> str:
    """A horizontal bar, filled to a share between 0 and 1."""
    width = max(0.0, min(1.0, share)) * 100
    return (
        f'<span class="bar" role="img" aria-label="{escape(label)}">'
        f'<i style="width:{width:.1f}%"></i></span>'
    )


def _merged(segments: Sequence[SegmentFacts], axis: Axis) -> list[list[SegmentFacts]]:
    """Segments too narrow to see share a block, so that a long log stays a small page."""
    groups: list[list[SegmentFacts]] = []
    for segment in segments:
        if groups and groups[-1][-1].sealed == segment.sealed:
            start, stop = _place(groups[-1], axis)
            if stop - start < _NARROW:
                groups[-1].append(segment)
                continue
        groups.append([segment])
    return groups


def _place(segments: Sequence[SegmentFacts], axis: Axis) -> tuple[float, float]:
    scale = _inner() / max(1, axis.high - axis.low)
    low = axis.place(segments[0])[0]
    high = max(axis.place(segment)[1] for segment in segments)
    return _LEFT + (low - axis.low) * scale, _LEFT + (high - axis.low) * scale


def _block(segments: Sequence[SegmentFacts], axis: Axis, top: int) -> str:
    start, stop = _place(segments, axis)
    start = min(start, _WIDTH - _RIGHT - _NARROW)
    first, last = segments[0], segments[-1]
    what = "segment" if len(segments) == 1 else plural(len(segments), "segment")
    title = (
        f"{what}: offsets {number(first.base)} to {number(last.end)}, "
        f"{size(sum(segment.size for segment in segments))}"
    )
    if axis.timed:
        title += f", {moment(first.first_time)} to {moment(last.last_time)}"
    kind = "sealed" if last.sealed else "active"
    return (
        f'<rect class="{kind}" x="{start:.1f}" y="{top + 2}" '
        f'width="{max(_NARROW, stop - start - 1):.1f}" height="{_ROW - 4}" rx="2">'
        f"<title>{escape(title)}</title></rect>"
    )


def _inner() -> int:
    return _WIDTH - _LEFT - _RIGHT


def _ends(left: int, right: int, y: int, low: str, high: str) -> str:
    return (
        f'<text class="tick" x="{left}" y="{y}">{escape(low)}</text>'
        f'<text class="tick" x="{right}" y="{y}" text-anchor="end">{escape(high)}</text>'
    )


def _svg(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
