"""Reads a topic in a process of its own and prints how much private memory that took.

Pages of a mapped file count in a process's resident size but belong to the page cache, so what is
measured is anonymous memory: what only this process holds.
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
    """Most anonymous memory, over that before the first read, while reading a topic to its end."""
    with Store.open(path) as store:
        start = peak = anonymous_bytes()
        for number, _ in enumerate(store.read(topic, 0)):
            if number % _EVERY_BATCHES == 0:
                peak = max(peak, anonymous_bytes())
        return max(peak, anonymous_bytes()) - start


if __name__ == "__main__":
    print(growth(sys.argv[1], sys.argv[2]))
