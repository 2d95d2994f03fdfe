"""Reads a topic in a separate process and prints its private memory.

Pages of a mapped file count in a process's resident size but belong to the page cache. So this
measures anonymous memory, which only this process has.
"""

from __future__ import annotations

import sys

from storage_core import Store

_EVERY_BATCHES = 50


def anonymous_bytes() -> int:
    """Anonymous memory of this process now."""
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/smaps_rollup has no line 'Anonymous:'")


def growth(path: str, topic: str) -> int:
    """Peak of anonymous memory during a read of a topic, minus that before the read."""
    with Store.open(path) as store:
        start = peak = anonymous_bytes()
        for number, _ in enumerate(store.read(topic, 0)):
            if number % _EVERY_BATCHES == 0:
                peak = max(peak, anonymous_bytes())
        return max(peak, anonymous_bytes()) - start


if __name__ == "__main__":
    print(growth(sys.argv[1], sys.argv[2]))
