"""``check``, ``repair`` and ``scrub``: find damage, and mend what can be mended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from ...errors import StorageError
from ...store.open_directory import semantics_problems
from ...store.store import Store
from ...types import Problem, RecoveryReport
from ..common import arguments, output
from ..common.formatting import number, plural, size
from ..inspect.store_facts import recovery_due
from .maintenance_reports import MaintenanceBar, report_object


@click.command()
@arguments.with_place
@click.option("--strict", is_flag=True, help="Exit with code 1 for warnings too.")
@click.option(
    "--store-semantics", is_flag=True,
    help="Only try out the conditional writes of an object store, at length.",
)  # fmt: skip
@arguments.as_json
@click.pass_context
def check(
    ctx: click.Context,
    place: arguments.Place,
    strict: bool,
    store_semantics: bool,
    as_json: bool,
) -> None:
    """Read the whole store and report every problem.

    Verifies all checksums and changes nothing. Exit code 1 if there is an error. A warning is a
    problem that the next writer repairs.
    """
    if store_semantics:
        # No store has to be there: one is only made where this finds nothing.
        with output.spinner("trying out"):
            texts = dict.fromkeys(semantics_problems(place.path, place.config, place.storage))
        found = [Problem("error", "STORE_SEMANTICS", f"{place.path}: {text}.") for text in texts]
    else:
        with place.open() as store, output.spinner("reading every byte"):
            found = store.check()
            topics = len(store.topics())
    _show_problems(found, as_json)
    read = "the semantics were tried out" if store_semantics else f"{plural(topics, 'topic')} read"
    output.note(
        f"{place.path}: {read}, {plural(len(found), 'problem') if found else 'no problems found'}"
    )
    if any(problem.severity == "error" for problem in found) or (strict and found):
        ctx.exit(output.PROBLEMS)


@click.command()
@arguments.with_store
@arguments.dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def repair(ctx: click.Context, store: Store, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Recover every partition and rebuild lost metadata.

    Shows the problems, then asks. Truncates torn tails, finishes interrupted commits and
    deletions, and rebuilds indexes and high watermarks. Truncated bytes are saved next to the log.
    Damaged records stay as they are. Exit code 1 if problems remain.
    """
    with output.spinner("reading every byte"):
        before = store.check()
    due = _recovery_due(store)
    if dry_run or not yes:
        _show_problems(before, as_json, due=due)
    nothing = not before and not due and not yes
    if dry_run or nothing:
        problems = plural(len(before), "problem") if before else "no problems found"
        output.note(f"{store.path}: {problems}; nothing was changed")
    if dry_run or nothing or not output.confirmed("Repair this store?", yes):
        ctx.exit(output.PROBLEMS if before else output.OK)
    failed: StorageError | None = None
    reports: list[RecoveryReport] = []
    with output.spinner("repairing"):
        try:
            reports = store.repair()
        except StorageError as error:
            failed = error
        after = store.check()
    if failed is not None:
        output.error(str(failed), failed.code)
    if as_json:
        output.show_json(
            {"repaired": [asdict(report) for report in reports], "left": _objects(after)}
        )
    elif reports:
        _recovery_table(reports)
    if after and not as_json:
        _show_problems(after, as_json=False)
    if failed is None or reports or after:
        output.note(
            f"{plural(len(reports), 'partition')} recovered, {plural(len(after), 'problem')} left"
        )
    if failed is not None or any(problem.severity == "error" for problem in after):
        ctx.exit(output.PROBLEMS)


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--rate",
    type=arguments.size_option,
    metavar="BYTES",
    help="Bytes to read per second (32MiB works too). Default: scrub_bytes_per_second.",
)
@arguments.as_json
@click.pass_context
def scrub(
    ctx: click.Context, store: Store, topic: str | None, rate: int | None, as_json: bool
) -> None:
    """Verify the checksums of all sealed segments.

    Reads the segments of TOPIC, or of all topics, and changes nothing. Exit code 1 if there is an
    error.
    """
    with MaintenanceBar() as bar:
        reports = store.scrub(topic, bytes_per_second=rate, progress=bar.show)
    problems = [problem for report in reports for problem in report.problems]
    if as_json:
        output.show_json([report_object(report) for report in reports])
    elif problems:
        _problem_table(problems)
    read = size(sum(report.bytes_before for report in reports))
    output.note(f"{read} read, {plural(len(problems), 'problem')}")
    if any(problem.severity == "error" for problem in problems):
        ctx.exit(output.PROBLEMS)


def _show_problems(
    found: Sequence[Problem], as_json: bool, due: Sequence[tuple[str, int]] | None = None
) -> None:
    if as_json:
        problems = _objects(found)
        if due is None:
            output.show_json(problems)
        else:
            names = [{"topic": topic, "partition": partition} for topic, partition in due]
            output.show_json({"problems": problems, "recovery_due": names})
        return
    if found:
        _problem_table(found)
    for topic, partition in due or ():
        output.line(
            f"{topic}-{partition}: not cleanly closed; recovered on the next write or repair."
        )


def _problem_table(found: Sequence[Problem]) -> None:
    output.table(
        ["severity", "code", "problem"],
        [[problem.severity, problem.code, problem.message] for problem in found],
    )


def _recovery_table(reports: Sequence[RecoveryReport]) -> None:
    heads = ["topic", ">partition", ">end", ">truncated\nbytes", "saved as"]
    output.table(
        [*heads, ">indexes\nrebuilt", ">segments\nremoved"],
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


def _objects(found: Sequence[Problem]) -> list[dict[str, Any]]:
    return [asdict(problem) for problem in found]


def _recovery_due(store: Store) -> list[tuple[str, int]]:
    return [
        (topic, partition)
        for topic in store.topics()
        for partition in range(store.topic(topic).partitions)
        if recovery_due(store, topic, partition)
    ]
