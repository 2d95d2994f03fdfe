"""How the benchmarks measure: the sides alternate, and the best of several rounds counts.

Other work on the machine slows both sides, but rarely at the same time. So the sides of a
comparison alternate in one run, and each counts with its best time. How much slower the median
round was than the best one shows how reliable the figure is: that is called the variation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

NOISY_VARIATION = 0.15
Side = Callable[[], float]
"""Does one round of work and returns the seconds that count, preparation left out."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of all rounds of one side."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def variation(self) -> float | None:
        """How much slower the median round was than the best one; None if there was one round."""
        if len(self.seconds) == 1 or not self.best:
            return None
        return statistics.median(self.seconds) / self.best - 1


def variation_of(*sides: Samples) -> float | None:
    """The larger variation of both sides; None if one of them was measured once."""
    variations = [side.variation for side in sides]
    known = [variation for variation in variations if variation is not None]
    return max(known) if len(known) == len(variations) else None


@dataclass(frozen=True, slots=True)
class Bar:
    """The limit of a ratio: at least, or at most."""

    direction: Literal["at least", "at most"]
    limit: float

    def met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.direction == "at least" else ratio <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.direction == 'at least' else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: our figure, the baseline's, their ratio and its limit.

    A figure that was measured once, such as memory, has no variation.
    """

    what: str
    ours: str
    baseline: str
    ratio: float
    bar: Bar | None
    variation: float | None

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return "reported"
        return "ok" if self.bar.met(self.ratio) else "MISSED"

    @property
    def noisy(self) -> bool:
        return self.variation is not None and self.variation > NOISY_VARIATION


def clock(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def interleaved(sides: Mapping[str, Side], rounds: int, warmups: int = 1) -> dict[str, Samples]:
    """Run all sides ``rounds`` times, alternating; each round starts with another side."""
    names = list(sides)
    for name in names * warmups:
        sides[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(sides[name]())
    return {name: Samples(tuple(found)) for name, found in seconds.items()}


def speed_row(
    what: str, ours: Samples, baseline: Samples, size: int, bar: Bar | None, name: str = ""
) -> Row:
    """Compare two speeds over the same bytes; the ratio is ours over the baseline's."""
    return Row(
        what,
        _speed(size / ours.best),
        f"{_speed(size / baseline.best)} {name}".rstrip(),
        baseline.best / ours.best,
        bar,
        variation_of(ours, baseline),
    )


def time_row(
    what: str, ours: Samples, baseline: Samples, bar: Bar | None, per: int = 1, name: str = ""
) -> Row:
    """Compare two durations, each of ``per`` operations; the ratio is ours over the baseline's."""
    return Row(
        what,
        _duration(ours.best / per),
        f"{_duration(baseline.best / per)} {name}".rstrip(),
        ours.best / baseline.best,
        bar,
        variation_of(ours, baseline),
    )


def _speed(bytes_per_second: float) -> str:
    if bytes_per_second >= 1e9:
        return f"{bytes_per_second / 1e9:.2f} GB/s"
    return f"{bytes_per_second / 1e6:.0f} MB/s"


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def table(rows: list[Row]) -> str:
    """The rows as an aligned table for people."""
    cells = [("what", "ours", "baseline", "ratio", "bar", "", "variation")]
    for row in rows:
        bar = "" if row.bar is None else str(row.bar)
        noise = " noisy" if row.noisy else ""
        variation = "–" if row.variation is None else f"{row.variation:.0%}{noise}"
        cells.append(
            (row.what, row.ours, row.baseline, f"{row.ratio:.2f}", bar, row.verdict, variation)
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)
