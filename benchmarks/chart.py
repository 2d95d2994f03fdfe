"""``python -m benchmarks.chart``: the figures of the last runs as a picture for the README.

Each bar is a ratio of two speeds measured in one run, on a logarithmic axis; the line is "as fast
as". Whatever was not measured is left out. Nothing is fetched: plain SVG.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from .__main__ import RESULTS

CHART = RESULTS.parent.parent / "docs" / "speed.svg"
_WIDTH, _LEFT, _LINE, _TOP = 860, 330, 26, 58
_FASTER, _SLOWER, _TEXT, _GRID = "#2a7f62", "#b5651d", "#24292f", "#d0d7de"


class Bar(NamedTuple):
    """One comparison: a row's text, the end of its baseline's, and what to call it."""

    what: str
    baseline: str
    label: str


SHOWN = (
    Bar("read, all columns", "Kafka", "Spark read against Kafka's source"),
    Bar("write, no key", "Kafka", "Spark write against Kafka's sink"),
    Bar("read, all columns", "JSON", "Spark read against JSON"),
    Bar("read, random values", "Parquet none", "Spark read against Parquet, uncompressed"),
    Bar("write, no key", "Parquet none", "Spark write against Parquet, uncompressed"),
    Bar("read, all columns", "ceiling", "Spark read against ready-made batches"),
    Bar("write, no key", "bytes only, synced", "Spark write against bytes only"),
    Bar("topic to topic", "", "Stream topic to topic against our batch"),
    Bar("sealed read", "CRC32C alone", "Engine read against CRC32C alone"),
    Bar("sealed read", "Python loop", "Engine read against a Python loop"),
    Bar("append, no fsync", "plain write", "Engine append against plain write"),
    Bar("append(), 1 thread", "bare loop", "Handler append against a bare loop"),
)


class Found(NamedTuple):
    """A comparison that was measured, with both absolute figures."""

    label: str
    ratio: float
    ours: str
    theirs: str


def last_rows(results: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Rows of all runs, the newest of each kind last, and what the newest run ran on."""
    runs = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    if not runs:
        raise SystemExit(f"nothing measured yet in {results}: run make bench first")
    return runs[-1]["environment"], [row for run in runs for row in run["rows"]]


def find(rows: Sequence[dict[str, Any]]) -> list[Found]:
    """The comparisons that are shown, each from its newest row."""
    found = []
    for bar in SHOWN:
        newest = [
            row
            for row in rows
            if row["what"] == bar.what and row["baseline"].endswith(bar.baseline)
        ]
        if newest:
            row = newest[-1]
            found.append(Found(bar.label, row["ratio"], row["ours"], row["baseline"]))
    return found


def draw(found: Sequence[Found], around: dict[str, Any]) -> str:
    """The picture."""
    low = min(0.25, *(item.ratio for item in found))
    high = max(4.0, *(item.ratio for item in found))
    span = math.log(high / low)
    room = _WIDTH - _LEFT - 250

    def across(ratio: float) -> float:
        return _LEFT + room * math.log(ratio / low) / span

    height = _TOP + _LINE * len(found) + 40
    one = across(1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="13" fill="{_TEXT}" role="img">',
        "<title>How fast cursus-spark is against its peers</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="24" font-size="16" font-weight="bold">Times as fast as the peer, '
        "both measured in one run</text>",
        f'<text x="{one:.0f}" y="{_TOP - 12}" text-anchor="middle">as fast</text>',
        f'<line x1="{one:.1f}" y1="{_TOP - 6}" x2="{one:.1f}" '
        f'y2="{_TOP + _LINE * len(found)}" stroke="{_GRID}"/>',
    ]
    for number, item in enumerate(found):
        top = _TOP + _LINE * number
        left, right = sorted((one, across(item.ratio)))
        colour = _FASTER if item.ratio >= 1 else _SLOWER
        figures = f"{item.ratio:.2g} × ({item.ours} to {item.theirs})"
        lines += [
            f'<text x="{_LEFT - 12}" y="{top + 16}" text-anchor="end">{escape(item.label)}</text>',
            f'<rect x="{left:.1f}" y="{top + 4}" width="{max(1.5, right - left):.1f}" '
            f'height="{_LINE - 10}" fill="{colour}"/>',
            f'<text x="{max(right, one) + 8:.1f}" y="{top + 16}" font-size="11">'
            f"{escape(figures)}</text>",
        ]
    machine = (
        f"{around['processors']} cores, {around['file_system']}, Python {around['python']}, "
        f"pyarrow {around['pyarrow']}; best of several rounds, sides taking turns; make bench"
    )
    lines.append(f'<text x="16" y="{height - 14}" font-size="11">{escape(machine)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    """Draw the chart from ``benchmarks/results``."""
    around, rows = last_rows(RESULTS)
    found = find(rows)
    CHART.write_text(draw(found, around))
    print(f"Drawn {len(found)} comparisons in {CHART.relative_to(RESULTS.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
