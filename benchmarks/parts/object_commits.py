"""Commits a second to one log in an object store, by one process and by several that race.

A commit that loses a race is built again on top of the winner's: that is a rebase. No data moves.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import Any

from storage_core import Store
from storage_core.objects.obstore_backend import ObstoreBackend

from .. import data
from ..data import Sizes
from ..measure import Bar, Row
from .object_servers import Place

_WRITERS = {data.FULL: (1, 8), data.QUICK: (1, 8), data.TINY: (1, 2)}
_COMMITS = {data.FULL: 200, data.QUICK: 100, data.TINY: 5}
_REBASES = Bar("at most", 2)
_PATIENCE_S = 300


def commit_rows(sizes: Sizes, place: Place) -> Iterator[Row]:
    """Commits a second, and rebases a commit, by the number of writers."""
    commits = _COMMITS[sizes]
    for writers in _WRITERS[sizes]:
        url = f"{place.url}/commits-{writers}"
        with Store.open(url, create=True, storage=place.storage) as store:
            store.create_topic("t", writers)
        seconds, creates = _race(url, place.storage, writers, commits)
        with Store.open(url, storage=place.storage) as store:
            if store.visible_ends("t") != (commits,) * writers:
                raise AssertionError(f"of {commits} commits there are {store.visible_ends('t')}")
        total = writers * commits
        shown, who = f"{total / seconds:.0f}/s", f"{writers} writer{'s' if writers > 1 else ''}"
        yield Row(f"commits, {who}, {place.server}", shown, "–", total / seconds, None, None)
        rebases = creates / total - 1
        yield Row(f"rebases a commit, {who}", f"{rebases:.2f}", "0", rebases, _REBASES, None)


def _race(url: str, storage: Mapping[str, str], writers: int, commits: int) -> tuple[float, int]:
    """Seconds until all have committed, and how many creates that took."""
    context = get_context("spawn")
    start, found = context.Barrier(writers), context.Queue()
    running = [
        context.Process(target=_write, args=(url, dict(storage), name, commits, start, found))
        for name in range(writers)
    ]
    for process in running:
        process.start()
    results = [found.get(timeout=_PATIENCE_S) for _ in running]
    for process in running:
        process.join()
    begins, ends, creates = zip(*results, strict=True)
    return max(ends) - min(begins), sum(creates)


def _write(
    url: str, storage: Mapping[str, str], partition: int, commits: int, start: Barrier, found: Any
) -> None:
    creates, create = itertools.count(), ObstoreBackend.create

    def counting(self: ObstoreBackend, key: str, body: Any) -> None:
        next(creates)
        create(self, key, body)

    ObstoreBackend.create = counting  # type: ignore[assignment,method-assign]
    with Store.open(url, storage=storage) as store:
        store.visible_ends("t")
        start.wait()
        begin = time.time()
        for number in range(commits):
            store.append("t", partition, [b"%d" % number])
        found.put((begin, time.time(), next(creates)))
