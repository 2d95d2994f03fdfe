"""``check``, ``repair``: looking after a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from ...errors import StorageError
from ...store.store import Store
from ...types import Problem, RecoveryReport
from ..common import arguments, screen
from ..common.wording import number
from ..inspect.overview import recovery_due

_dry_run = click.option("--dry-run", "-n", is_flag=True, help="Only show what would be done.")


@click.command()
@arguments.with_store
@click.option("--strict", is_flag=True, help="Warnings count as problems too.")
@arguments.as_json
@click.pass_context
def check(ctx: click.Context, store: Store, strict: bool, as_json: bool) -> None:
    """Read the whole store, checksums included, and report every problem. Changes nothing.

    Exit code 1 if there is an error; what repairs itself is a warning.
    """
    with screen.waiting("reading every byte"):
        found = store.check()
    _show_problems(found, as_json)
    if any(problem.severity == "error" for problem in found) or (strict and found):
        ctx.exit(screen.PROBLEMS)


@click.command()
@arguments.with_store
@_dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def repair(ctx: click.Context, store: Store, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Recover every partition: cut torn tails, rebuild indexes and watermarks.

    Shows first what is wrong, then asks. Cut bytes are saved beside the log, and damaged records
    stay as they are. Exit code 1 if something is left.
    """
    with screen.waiting("reading every byte"):
        before = store.check()
    due = _recovery_due(store)
    if dry_run or not yes:
        _show_problems(before, as_json, due=due)
    nothing = not before and not due and not yes
    if dry_run or nothing or not screen.confirmed("Repair this store now?", yes):
        ctx.exit(screen.PROBLEMS if before else screen.OK)
    failed: StorageError | None = None
    reports: list[RecoveryReport] = []
    with screen.waiting("repairing"):
        try:
            reports = store.repair()
        except StorageError as error:
            failed = error
        after = store.check()
    if failed is not None:
        screen.complain(str(failed), failed.code)
    if as_json:
        screen.show_json(
            {"repaired": [asdict(report) for report in reports], "left": _objects(after)}
        )
    elif reports:
        screen.table(
            ["topic", ">partition", ">end", ">cut bytes", "saved as", ">indexes", ">segments"],
            [
                [
                    report.topic,
                    str(report.partition),
                    number(report.end_offset),
                    number(report.cut_bytes),
                    report.saved_as or "–",
                    number(report.rebuilt_indexes),
                    number(report.removed_segments),
                ]
                for report in reports
            ],
        )
    if after and not as_json:
        _show_problems(after, as_json=False)
    if failed is not None or any(problem.severity == "error" for problem in after):
        ctx.exit(screen.PROBLEMS)


def _show_problems(
    found: Sequence[Problem], as_json: bool, due: Sequence[tuple[str, int]] | None = None
) -> None:
    if as_json:
        problems = _objects(found)
        if due is None:
            screen.show_json(problems)
        else:
            names = [{"topic": topic, "partition": partition} for topic, partition in due]
            screen.show_json({"problems": problems, "recovery_due": names})
        return
    if found:
        screen.table(
            ["severity", "code", "problem"],
            [[problem.severity, problem.code, problem.message] for problem in found],
        )
    else:
        screen.note("No problems found.")
    for topic, partition in due or ():
        screen.line(
            f"{topic}-{partition}: a crash or a restart came between; its end will be looked at."
        )


def _objects(found: Sequence[Problem]) -> list[dict[str, Any]]:
    return [asdict(problem) for problem in found]


def _recovery_due(store: Store) -> list[tuple[str, int]]:
    return [
        (topic, partition)
        for topic in store.topics()
        for partition in range(store.topic(topic).partitions)
        if recovery_due(store, topic, partition)
    ]
