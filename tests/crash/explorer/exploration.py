"""Runs the crash explorer over many stories until enough distinct states were looked at.

The same seed gives the same states: identifiers are drawn from it too. Several processes share the
work, each with stories of its own.
"""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import chain, count
from random import Random
from typing import Any

from storage_core import StoreConfig
from storage_core.io import json_files as metafile
from storage_core.log.interval_sync import Flusher
from tests.crash.explorer.explorer import Explorer, Report
from tests.crash.explorer.invariants import forget_looks
from tests.crash.explorer.scenarios import STORIES, explore, explore_successor

_SUCCESSORS = "successors"


@contextmanager
def quickly(seed: int) -> Iterator[None]:
    """Same identifiers for the same seed, and no time spent on what no state depends on.

    The checksum of a metadata file and the settings of a topic are checked once for the same bytes;
    warnings are not formatted; the garbage collector waits; and no thread is started to sync within
    an hour, because a store that "lost power" never stops it: long runs would have no threads left.
    """
    rng = Random(seed)
    load, made, override = metafile.load, uuid.uuid4, StoreConfig.override
    wake = Flusher.wake
    logger = logging.getLogger("storage_core")
    level = logger.level
    sound: set[bytes] = set()
    configs: dict[Any, StoreConfig] = {}

    def load_once(data: bytes, path: str, limit: int = metafile.MAX_BYTES) -> dict[str, Any]:
        if data in sound:
            fields: dict[str, Any] = json.loads(data)
            del fields["crc32c"]
            return fields
        found = load(data, path, limit)
        sound.add(data)
        return found

    def override_once(self: StoreConfig, settings: Mapping[str, Any]) -> StoreConfig:
        key = (self, *sorted(settings.items()))
        if key not in configs:
            configs[key] = override(self, settings)
        return configs[key]

    try:
        forget_looks()
        logger.setLevel(logging.CRITICAL)
        gc.disable()
        metafile.load = load_once
        uuid.uuid4 = lambda: uuid.UUID(int=rng.getrandbits(128), version=4)
        StoreConfig.override = override_once  # type: ignore[method-assign]
        Flusher.wake = lambda self, interval_ms: None  # type: ignore[method-assign] # noqa: ARG005
        yield
    finally:
        metafile.load, uuid.uuid4 = load, made
        StoreConfig.override = override  # type: ignore[method-assign]
        Flusher.wake = wake  # type: ignore[method-assign]
        gc.enable()
        logger.setLevel(level)


def explore_story(name: str, seed: int, samples: int) -> Report:
    """Look at the states of one story."""
    explorer = Explorer(Random(f"{seed} {name}"), samples)
    with quickly(seed):
        if name == _SUCCESSORS:
            explorer.likely = 0.04
            explore_successor(explorer)
        else:
            explore(name, explorer)
    gc.collect()
    return explorer.report


def explore_until(
    states: int,
    seed: int,
    samples: int,
    processes: int = 2,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Report]:
    """Every fixed story once, then stories by chance until there were ``states`` states.

    Returns the reports by story; those by chance are one. ``progress`` gets how many states
    there were, after each story.
    """
    reports: dict[str, Report] = {}
    stories = chain((_SUCCESSORS, *STORIES), (f"chance {seed + n}" for n in count()))
    distinct, started = set[int](), 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running: dict[Future[Report], str] = {}
        while True:
            # One more story when one ends: the fixed ones are all played, whatever the target.
            while len(running) < processes and (len(distinct) < states or started <= len(STORIES)):
                name = next(stories)
                running[pool.submit(explore_story, name, seed, samples)] = name
                started += 1
            if not running:
                return reports
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(done)
                key = "by chance" if name.startswith("chance ") else name
                reports.setdefault(key, Report()).add(done.result())
                distinct |= done.result().distinct
            progress(len(distinct))


def describe(reports: dict[str, Report], seed: int) -> str:
    """The figures of a run, as a table."""
    lines = [f"crash states, seed {seed}", f"{'story':<16}{'calls':>8}{'states':>9}{'kills':>7}"]
    lines[1] += f"{'in recovery':>13}{'violations':>12}"
    total = Report()
    for name, report in reports.items():
        total.add(report)
        lines.append(_line(name, report))
    return "\n".join([*lines, _line("all", total)])


def _line(name: str, report: Report) -> str:
    return (
        f"{name:<16}{report.calls:>8}{report.states:>9}{report.killed:>7}{report.nested:>13}"
        f"{len(report.violations):>12}"
    )
