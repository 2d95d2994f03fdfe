"""``python -m benchmarks.chart``: the figures of the last runs as a chart for the README.

Each bar is a ratio of two speeds measured in one run, on a logarithmic axis; the line is "as fast
as". Comparisons that were not measured are left out. The chart is plain SVG.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple

from .__main__ import RESULTS

CHART = RESULTS.parent.parent / "docs" / "speed.svg"
_WIDTH, _LEFT, _LINE, _TOP = 860, 330, 26, 58
_FASTER, _SLOWER, _TEXT, _GRID = "#2a7f62", "#b5651d", "#24292f", "#d0d7de"


class Bar(NamedTuple):
    """One comparison: start of the row's name, end of the baseline's name, and its label."""

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
    Bar("topic to topic", "our batch write", "Stream topic to topic against our batch write"),
    Bar("sealed read", "CRC32C alone", "Engine read against CRC32C alone"),
    Bar("sealed read", "Python loop", "Engine read against a Python loop"),
    Bar("append, no fsync", "plain write", "Engine append against plain write"),
    Bar("append(), 1 thread", "bare loop", "Handler append against a bare loop"),
)


class Found(NamedTuple):
    """A measured comparison, with both absolute figures and the variation of its rounds."""

    label: str
    ratio: float
    ours: str
    theirs: str
    variation: float | None = None


def last_run(results: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Rows of all runs at the full size, latest last, and the machine of the latest run."""
    runs = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    full = [run for run in runs if run["environment"].get("size") == "full"]
    if not full:
        raise SystemExit(f"nothing measured at full size yet in {results}: run make bench first")
    return full[-1]["environment"], [row for run in full for row in run["rows"]]


def find(rows: Sequence[dict[str, Any]]) -> list[Found]:
    """The comparisons of the chart, each from its latest row."""
    found = []
    for bar in SHOWN:
        newest = [
            row
            for row in rows
            if row["what"] == bar.what and _name(row["baseline"]) == bar.baseline
        ]
        if newest:
            row = newest[-1]
            variation = row.get("variation", row.get("spread"))  # its name in earlier results
            figures = (row["ratio"], row["ours"], row["baseline"], variation)
            found.append(Found(bar.label, *figures))
    return found


def _name(baseline: str) -> str:
    """The name of a baseline, without its figure and unit."""
    return baseline.split(" ", 2)[-1]


def with_earlier(found: Sequence[Found], drawn: str) -> list[Found]:
    """The new comparisons, and those of the existing chart that were not measured again."""
    kept = re.search(r"<metadata>(.*)</metadata>", drawn)
    earlier = [Found(*item) for item in json.loads(unescape(kept.group(1)))] if kept else []
    by_label = {item.label: item for item in (*earlier, *found)}
    return [by_label[bar.label] for bar in SHOWN if bar.label in by_label]


def _figure(baseline: str) -> str:
    return " ".join(baseline.split(" ", 2)[:2])


def draw(found: Sequence[Found], around: dict[str, Any]) -> str:
    """The chart as SVG."""
    low = min(0.25, *(item.ratio for item in found))
    high = max(4.0, *(item.ratio for item in found))
    span = math.log(high / low)
    room = _WIDTH - _LEFT - 250

    def across(ratio: float) -> float:
        return _LEFT + room * math.log(ratio / low) / span

    height = _TOP + _LINE * len(found) + 56
    one = across(1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="13" fill="{_TEXT}" role="img">',
        "<title>How fast cursus-spark is against its peers</title>",
        f"<metadata>{escape(json.dumps(found))}</metadata>",
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
        noise = "" if item.variation is None else f", ±{item.variation:.0%}"
        figures = f"{item.ratio:.2g} × ({item.ours} to {_figure(item.theirs)}{noise})"
        lines += [
            f'<text x="{_LEFT - 12}" y="{top + 16}" text-anchor="end">{escape(item.label)}</text>',
            f'<rect x="{left:.1f}" y="{top + 4}" width="{max(1.5, right - left):.1f}" '
            f'height="{_LINE - 10}" fill="{colour}"/>',
            f'<text x="{max(right, one) + 8:.1f}" y="{top + 16}" font-size="11">'
            f"{escape(figures)}</text>",
        ]
    machine = (
        f"{around['processors']} cores, {around['memory_gib']} GiB, {around['file_system']}, "
        f"Python {around['python']}, PySpark {around['pyspark']}, pyarrow {around['pyarrow']}, "
        f"{around['date']}"
    )
    method = "Records of 100 bytes; best of several rounds, sides taking turns; ± how far they were"
    for above, text in ((30, method), (14, machine)):
        lines.append(f'<text x="16" y="{height - above}" font-size="11">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    """Draw the chart from ``benchmarks/results``."""
    around, rows = last_run(RESULTS)
    found = with_earlier(find(rows), CHART.read_text() if CHART.exists() else "")
    CHART.write_text(draw(found, around))
    print(f"Drawn {len(found)} comparisons in {CHART.relative_to(RESULTS.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
