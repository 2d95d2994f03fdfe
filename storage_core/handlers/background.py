"""Background maintenance: a thread that looks after the logs of a store from time to time.

What it does to a topic is what the topic's settings ask for. A failure is logged and the next
topic's turn comes; nothing here can fail an append.
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
# In the background a merge waits until it pays: each one writes all of its segments again.
_WORTH_A_MERGE = 8


class Maintainer:
    """Looks after one store until it is stopped. Safe for several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._config = store.config
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cursus-maintenance", daemon=True)

    def start(self) -> None:
        """Begin; the first round comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """End the round that is under way, and wait until it has ended. Safe to call twice."""
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
        """One round: retention, compaction, merging and old segments' codec, topic by topic."""
        for topic in self._topics():
            if self._stopping.is_set():
                return
            self._try(f"looking after topic {topic!r}", partial(self._maintain, topic))

    def scrub(self) -> None:
        """Verify every checksum of closed segments and log what does not check."""

        def run() -> None:
            for report in self._store.scrub(stop=self._stopping.is_set):
                for problem in report.problems:
                    level = logging.ERROR if problem.severity == "error" else logging.WARNING
                    _log.log(level, "scrub: %s", problem.message)

        self._try("scrubbing", run)

    def _maintain(self, topic: str) -> None:
        store, stop = self._store, self._stopping.is_set
        config: StoreConfig = store.topic(topic).config(self._config)
        dropped = store.retain(topic)
        if dropped:
            count = sum(map(len, dropped.values()))
            _log.info("retention of topic %r dropped %d segments", topic, count)
        if "compact" in config.cleanup_policy:
            _tell(store.compact(topic, stop=stop))
        if config.merge_below_bytes is not None:
            _tell(
                store.merge(
                    topic,
                    below_bytes=config.merge_below_bytes,
                    at_least=_WORTH_A_MERGE,
                    stop=stop,
                )
            )
        if config.cold_compression is not None:
            _tell(
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
            # A mistake in this package must not end the care of all other topics.
            _log.exception("%s failed", what)


def _tell(reports: list[UpkeepReport]) -> None:
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
