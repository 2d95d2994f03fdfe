"""What must notice a bug that was put into the engine, by name.

A story of the explorer or an operation on a log, or only some of its calls with ``<operation>
around <text>``; ``killed before <call>``, after a committer that is killed there; ``full disk in
<story>``; ``failing syncs``; ``wrong bytes``; ``wrong bits of <file>`` of a typed topic; ``promise
of <what>`` or ``promise after a kill of <what>``; ``<story> in <layout>``, for brokers'
directories; compactions; two writers, by the names in ``TOGETHER``; and those of ``narrow_cuts``,
``interrupted``, ``wrong_files`` and ``wrong_columns``. Each ends at the first thing it notices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from storage_core.errors import StorageError
from tests.crash.breakers import (
    failing_calls,
    interrupted,
    narrow_cuts,
    object_cuts,
    promises,
    wrong_columns,
    wrong_files,
)
from tests.crash.breakers.torn_reads import damaged_slots, stale_slots, torn_reads, unsynced_names
from tests.crash.breakers.two_writers import (
    recreated,
    recreated_columns,
    two_column_writers,
    two_writers,
)
from tests.crash.breakers.wrong_bytes import flipped_bytes, wrong_bytes
from tests.crash.explorer import broker_states, broker_stories
from tests.crash.explorer.broker_states import BrokerExplorer
from tests.crash.explorer.compactions import COMPACTIONS
from tests.crash.explorer.explorer import Explorer
from tests.crash.explorer.invariants import History, World, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.scenarios import BIG, SMALL, STORIES, explore, explore_successor
from tests.crash.test_lifecycle_states import SCENARIOS
from tests.support.sizes import SEED

MISTAKES = ("TypeError", "AttributeError", "NameError", "ImportError")
"""Bugs of a bug itself, not ones that were noticed."""


class FoundError(Exception):
    """A violation: enough."""


class FirstOnly(Explorer):
    """Ends at the first violation."""

    def _guarded(self, where: str, check: Callable[[], None]) -> None:
        super()._guarded(where, check)
        if self.report.violations:
            raise FoundError(self.report.violations[0])


@dataclass
class Focused(FirstOnly):
    """Looks at the calls only that have some text in them, but closely."""

    text: str = ""

    def _cut(
        self, vfs: MemoryVfs, history: History, where: str, samples: int, depth: int = 0
    ) -> None:
        if self.text in where:
            super()._cut(vfs, history, where, samples, depth)

    def _killed(self, vfs: MemoryVfs, history: History, where: str) -> None:
        if self.text in where:
            super()._killed(vfs, history, where)


class FirstInBroker(BrokerExplorer):
    """Ends at the first violation in a broker's directory."""

    def _guarded(self, where: str, check: Callable[[], None]) -> None:
        super()._guarded(where, check)
        if self.violations:
            raise FoundError(self.violations[0])


def drop_many(world: World) -> None:
    """Retention takes several segments at once."""
    for number in range(4):
        world.append("t", 0, (b"%d" % number).ljust(BIG, b"."))
        world.store.roll("t", 0)
    world.append("t", 0, b"active")
    world.store.alter_topic("t", retention_bytes=0)
    world.store.retain()


OPERATIONS = {**SCENARIOS, "drop many": (drop_many, SMALL)}
TOGETHER: dict[str, Callable[[], int]] = {
    "two writers": two_writers,
    "two column writers": two_column_writers,
    "recreated topics": recreated,
    "recreated columns": recreated_columns,
}
COLUMNS: dict[str, Callable[[], None]] = {
    "parts of other columns": wrong_columns.parts_of_other_columns,
    "old intents": wrong_columns.old_intents,
}
SIMPLE: dict[str, Callable[[], object]] = {
    **narrow_cuts.CUTS,
    **object_cuts.CUTS,
    "conversions": interrupted.conversions,
    "every change of a merge": interrupted.merges,
    **{
        f"{what} in {layout}": partial(act, layout)
        for what, act in broker_states.SHORT.items()
        for layout in broker_stories.LAYOUTS
    },
    "set aside": partial(interrupted.set_aside, 1),
    "torn reads": torn_reads,
    "damaged slots": damaged_slots,
    "stale slots": stale_slots,
    "unsynced names": unsynced_names,
    **COLUMNS,
}
IN_BROKERS = {f"{story} in {layout}": (layout, story) for layout, story in broker_stories.PLAYED}
# What some stories do that counts comes late in them.
_LIKELY = {"retention": 0.4, "large commits": 0.5}


def detectors() -> list[str]:
    """All there are, but for committers killed before a call."""
    return [
        *STORIES,
        *OPERATIONS,
        *(f"promise of {name}" for name in promises.PROMISES),
        *(f"promise after a kill of {name}" for name in promises.PROMISES),
        *(f"full disk in {name}" for name in failing_calls.STORIES),
        *SIMPLE,
        *IN_BROKERS,
        *COMPACTIONS,
        *TOGETHER,
        "failing syncs",
    ]


def found_by(noticed: str) -> Exception | None:
    """What a detector notices; None if that is nothing."""
    try:
        detector(noticed)()
    except (FoundError, AssertionError, StorageError) as error:
        return error
    return None


def detector(noticed: str) -> Callable[[], object]:
    """What must notice a bug."""
    # Killed before every call, so that no change of the engine hides a bug by moving the calls.
    explorer = FirstOnly(Random(SEED), samples=10, kill_every=1)
    if noticed in TOGETHER:
        return TOGETHER[noticed]
    if noticed == "failing syncs":
        return partial(_first, lambda: failing_calls.failing_syncs())
    if noticed in SIMPLE:
        return SIMPLE[noticed]
    if noticed in IN_BROKERS:
        layout, story = IN_BROKERS[noticed]
        played = FirstInBroker(layout, Random(SEED), samples=4)
        return partial(played.run, broker_stories.STORIES[story])
    if noticed in COMPACTIONS:
        return partial(COMPACTIONS[noticed], Random(SEED), 12, first_only=True)
    if noticed in wrong_files.FILES:
        return wrong_files.FILES[noticed]
    if noticed == "wrong bytes":
        return partial(wrong_bytes, SEED)
    if noticed.startswith("wrong bytes of "):
        return partial(flipped_bytes, Random(SEED), (noticed.removeprefix("wrong bytes of "),))
    if noticed.startswith("wrong bits of "):
        return partial(wrong_columns.wrong_bits, noticed.removeprefix("wrong bits of "))
    if noticed.startswith("promise of "):
        return partial(promises.keep, noticed.removeprefix("promise of "))
    if noticed.startswith("promise after a kill of "):
        name = noticed.removeprefix("promise after a kill of ")
        return partial(promises.keep, name, killed=True)
    if noticed.startswith("full disk in "):
        story = noticed.removeprefix("full disk in ")
        return partial(_first, lambda: failing_calls.cuts_after_a_failure(story)[1])
    if noticed.startswith("killed before "):
        where = partial(_is_call, noticed.removeprefix("killed before "))
        return partial(explore_successor, explorer, where)
    explorer.likely = _LIKELY.get(noticed, 1.0)
    if noticed in STORIES:
        return partial(explore, noticed, explorer)
    operation, _, text = noticed.partition(" around ")
    scenario, settings = OPERATIONS[operation]
    explorer.likely, explorer.kill_every = 0.5, 2
    if text:
        explorer = Focused(Random(SEED), samples=60, again=0, text=text)
    return partial(explorer.run, operation, new_store({"t": 2}, **settings), scenario)


def _first(found: Callable[[], list[str]]) -> None:
    for violation in found():
        raise FoundError(violation)


def _is_call(wanted: str, kind: str, path: str) -> bool:
    return f"{kind} {path}" == wanted
