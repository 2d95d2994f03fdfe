"""Maintenance of all logs of a store at intervals, in the background or in the foreground.

The settings of a topic say what is done to it. A failure is logged, and the next topic is
maintained; no failure here fails an append.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from functools import partial

from ..config import StoreConfig
from ..errors import StorageError
from ..layouts.registry import LAYOUTS, READ_ONLY
from ..maintenance.report import UpkeepReport
from ..store.store import Store

_log = logging.getLogger("storage_core")
# In the background a merge waits for this number of segments: it writes all of them again.
_WORTH_A_MERGE = 8


class Maintainer:
    """Maintains one store until it is stopped. Safe for several threads.

    ``start`` does it in a thread, ``run`` and ``run_once`` in the thread of the caller.

    Attributes:
        failures: How many steps have failed, or found damage.
    """

    def __init__(self, store: Store, stopping: threading.Event | None = None) -> None:
        self._store = store
        self._config = store.config
        self._layout = LAYOUTS[store.layout]
        self._stopping = threading.Event() if stopping is None else stopping
        self._thread = threading.Thread(target=self.run, name="cursus-maintenance", daemon=True)
        self.failures = 0

    def start(self) -> None:
        """Start the thread; the first round comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the current round and wait for its end. Safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def run(self, *, at_once: bool = False) -> None:
        """Work at the intervals of the configuration until it is stopped.

        ``at_once`` the first rounds come now. Each interval is up to a tenth longer, at random:
        stores that were opened together are not maintained together.
        """
        clock, config = self._store.vfs.monotonic, self._config
        rounds = [
            (interval / 1000, work)
            for interval, work in (
                (config.maintenance_interval_ms, self.maintain),
                (config.scrub_interval_ms, self.scrub),
            )
            if interval is not None
        ]
        due = [clock() + (0 if at_once else _jittered(interval)) for interval, _ in rounds]
        while not self._stopping.wait(max(0.0, min(due) - clock())):
            for number, (interval, work) in enumerate(rounds):
                if clock() >= due[number]:
                    work()
                    due[number] = clock() + _jittered(interval)

    def run_once(self) -> None:
        """One round of maintenance, and a scrub if the configuration has an interval for it."""
        self.maintain()
        if self._config.scrub_interval_ms is not None:
            self.scrub()

    def maintain(self) -> None:
        """One round, topic by topic: retention, compaction, merge, codec of old segments."""
        if self._layout.name in READ_ONLY:
            _log.info(
                "nothing to maintain in %s: layout %s is only read, and its broker does all that",
                self._store.path,
                self._layout.name,
            )
            return
        begun, before, topics = self._store.vfs.monotonic(), self.failures, self._topics()
        for topic in topics:
            if self._stopping.is_set():
                return
            self._try(f"maintenance of topic {topic!r}", partial(self._maintain, topic))
        if self._layout.garbage and not self._stopping.is_set():
            self._try("garbage collection", self._collect_garbage)
        seconds, failed = self._store.vfs.monotonic() - begun, self.failures - before
        _log.info(
            "maintained %s in %.1f s, %s",
            _count(len(topics), "topic"),
            seconds,
            _count(failed, "failure"),
        )

    def scrub(self) -> None:
        """Verify every checksum of sealed segments and log the problems."""

        def run() -> None:
            reports = self._store.scrub(stop=self._stopping.is_set)
            for report in reports:
                for problem in report.problems:
                    level = logging.ERROR if problem.severity == "error" else logging.WARNING
                    self.failures += problem.severity == "error"
                    _log.log(level, "scrub: %s", problem.message)
            read = sum(report.bytes_before for report in reports)
            _log.info("scrub verified %d bytes", read)

        self._try("scrub", run)

    def _collect_garbage(self) -> None:
        count, size = self._store.collect_garbage()
        if count:
            _log.info("garbage collection deleted %d objects, %d bytes", count, size)

    def _maintain(self, topic: str) -> None:
        store, stop = self._store, self._stopping.is_set
        found = store.topic(topic)
        config: StoreConfig = found.config(self._config)
        dropped = store.retain(topic)
        if dropped:
            count = sum(map(len, dropped.values()))
            _log.info("retention of topic %r deleted %s", topic, _count(count, "segment"))
        if self._layout.compact and "compact" in config.cleanup_policy and found.has_keys:
            _log_reports(store.compact(topic, stop=stop))
        if self._layout.rewrite and config.merge_below_bytes is not None:
            _log_reports(
                store.merge(
                    topic,
                    below_bytes=config.merge_below_bytes,
                    at_least=_WORTH_A_MERGE,
                    stop=stop,
                )
            )
        if self._layout.rewrite and config.cold_compression is not None:
            _log_reports(
                store.recompress(
                    topic,
                    compression=config.cold_compression,
                    level=config.cold_compression_level,
                    older_than_ms=config.cold_after_ms,
                    stop=stop,
                )
            )

    def _topics(self) -> list[str]:
        try:
            return self._store.topics()
        except StorageError as error:
            self.failures += 1
            _log.warning("maintenance cannot list the topics: %s", error)
            return []

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except StorageError as error:
            self.failures += 1
            _log.warning("%s failed: %s", what, error)
        except Exception:
            self.failures += 1
            # A bug in this package must not end the maintenance of all other topics.
            _log.exception("%s failed", what)


def _jittered(interval_s: float) -> float:
    return interval_s * random.uniform(1.0, 1.1)


def _log_reports(reports: list[UpkeepReport]) -> None:
    for report in reports:
        if report.segments_before:
            _log.info(
                "%s of %s-%d: %d segments became %d, %d bytes saved, %d records removed",
                report.action,
                report.topic,
                report.partition,
                report.segments_before,
                report.segments_after,
                report.saved_bytes,
                report.records_removed,
            )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
