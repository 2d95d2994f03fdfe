"""Compacts a topic in a separate process; prints the seconds and the peak of private memory."""

from __future__ import annotations

import sys
import time

from storage_core import Store, UpkeepProgress

from .memory import anonymous_bytes

_EVERY_FRAMES = 20


def compact(path: str, most_keys: int) -> tuple[float, int]:
    """Seconds of a compaction, and the peak of the process's anonymous memory."""
    peak, calls = anonymous_bytes(), 0

    def watch(now: UpkeepProgress) -> None:  # noqa: ARG001
        nonlocal peak, calls
        calls += 1
        if calls % _EVERY_FRAMES == 0:
            peak = max(peak, anonymous_bytes())

    with Store.open(path) as store:
        begin = time.perf_counter()
        reports = store.compact("t", min_dirty_ratio=0, progress=watch)
        seconds = time.perf_counter() - begin
        left = sum(batch.num_rows for batch in store.read("t", 0, columns=("offset",)))
    if not all(report.done for report in reports) or left > most_keys + 1:
        raise AssertionError(f"{left} records are left of {most_keys} keys: {reports}")
    return seconds, max(peak, anonymous_bytes())


if __name__ == "__main__":
    print(*compact(sys.argv[1], int(sys.argv[2])))
