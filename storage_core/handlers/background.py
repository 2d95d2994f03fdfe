"""Background maintenance: a thread that maintains the logs of a store at intervals.

The settings of a topic say what is done to it. A failure is logged, and the next topic is
maintained; no failure here fails an append.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from ..config import StoreConfig
from ..errors import StorageError
from ..maintenance.report import UpkeepReport
from ..store.store import Store

_log = logging.getLogger("storage_core")
# In the background a merge waits for this number of segments: it writes all of them again.
_WORTH_A_MERGE = 8


class Maintainer:
    """Maintains one store until it is stopped. Safe for several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._config = store.config
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cursus-maintenance", daemon=True)

    def start(self) -> None:
        """Start the thread; the first round comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the current round and wait for its end. Safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        clock, config = self._store.vfs.monotonic, self._config
        rounds = [
            (interval / 1000, work)
            for interval, work in (
                (config.maintenance_interval_ms, self.maintain),
                (config.scrub_interval_ms, self.scrub),
            )
            if interval is not None
        ]
        due = [clock() + interval for interval, _ in rounds]
        while not self._stopping.wait(max(0.0, min(due) - clock())):
            for number, (interval, work) in enumerate(rounds):
                if clock() >= due[number]:
                    work()
                    due[number] = clock() + interval

    def maintain(self) -> None:
        """One round, topic by topic: retention, compaction, merge, codec of old segments."""
        for topic in self._topics():
            if self._stopping.is_set():
                return
            self._try(f"maintenance of topic {topic!r}", partial(self._maintain, topic))

    def scrub(self) -> None:
        """Verify every checksum of sealed segments and log the problems."""

        def run() -> None:
            for report in self._store.scrub(stop=self._stopping.is_set):
                for problem in report.problems:
                    level = logging.ERROR if problem.severity == "error" else logging.WARNING
                    _log.log(level, "scrub: %s", problem.message)

        self._try("scrub", run)

    def _maintain(self, topic: str) -> None:
        store, stop = self._store, self._stopping.is_set
        found = store.topic(topic)
        config: StoreConfig = found.config(self._config)
        dropped = store.retain(topic)
        if dropped:
            count = sum(map(len, dropped.values()))
            _log.info("retention of topic %r deleted %d segments", topic, count)
        if "compact" in config.cleanup_policy and found.has_keys:
            _log_reports(store.compact(topic, stop=stop))
        if config.merge_below_bytes is not None:
            _log_reports(
                store.merge(
                    topic,
                    below_bytes=config.merge_below_bytes,
                    at_least=_WORTH_A_MERGE,
                    stop=stop,
                )
            )
        if config.cold_compression is not None:
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
            _log.warning("maintenance cannot list the topics: %s", error)
            return []

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except StorageError as error:
            _log.warning("%s failed: %s", what, error)
        except Exception:
            # A bug in this package must not end the maintenance of all other topics.
            _log.exception("%s failed", what)


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
