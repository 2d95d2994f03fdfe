"""``roll`` seals active segments; ``compact``, ``merge`` and ``recompress`` rewrite sealed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from ...config import CODECS, Compression
from ...layouts.registry import LAYOUTS
from ...maintenance.report import NOTHING_SEALED, UpkeepReport
from ...store.store import Store
from ..common import arguments, output
from ..common.formatting import plural, size
from .maintenance_reports import MaintenanceBar, show_reports

Reports = list[UpkeepReport]


@click.command()
@arguments.with_store
@arguments.optional_topic
@arguments.partition
def roll(store: Store, topic: str | None, partition: int | None) -> None:
    """Seal the active segments.

    Of TOPIC, or of all topics. Maintenance works on sealed segments only. No record changes; the
    next append starts a new segment.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs a TOPIC.")
    if not LAYOUTS[store.layout].rolls:
        output.note(f"There is nothing to seal: in layout {store.layout} no slice ever grows.")
        return
    output.note(_roll(store, store.topics() if topic is None else [topic], partition))


def _roll(store: Store, topics: Sequence[str], partition: int | None = None) -> str:
    """Seal the active segments of topics, and begin new ones; say how many."""
    rolled = 0
    for name in topics:
        for number in arguments.chosen_partitions(store, name, partition):
            before = _sealed(store, name, number)
            if before is not None:
                store.roll(name, number, begin=True)
                rolled += _sealed(store, name, number) != before
    if not rolled:
        return "There is nothing to seal: no active segment has a record."
    return f"{plural(rolled, 'active segment')} sealed"


def _sealed(store: Store, topic: str, partition: int) -> int | None:
    """How many segments maintenance works on; None without records."""
    segments = store.segments(topic, partition, by_names=True)
    return sum(segment.sealed for segment in segments) if segments else None


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--min-dirty-ratio",
    type=click.FloatRange(0, 1),
    metavar="RATIO",
    help="Compact if at least this share of the log is new; 0: any new record. "
    "Default: the topic's min_cleanable_dirty_ratio.",
)
@click.option(
    "--policy",
    type=click.Choice(["compact", "delete,compact"]),
    help="Cleanup policy, for broker layouts: they store no topic settings.",
)
@click.option("--roll", "seal", is_flag=True, help="Seal the active segments first.")
@arguments.dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def compact(
    ctx: click.Context,
    /,
    store: Store,
    topic: str | None,
    min_dirty_ratio: float | None,
    policy: Any,
    seal: bool,
    **how: Any,
) -> None:
    """Keep only the latest record of each key.

    Compacts the sealed segments of TOPIC, or of all topics whose cleanup_policy says so. Shows
    what it would remove, then asks. Records without a key stay, and no offset changes.
    """
    chosen = [name for name in _compacted(store, policy) if topic in (None, name)]
    if seal and how["dry_run"]:
        raise click.UsageError("--roll seals segments, and --dry-run changes nothing: pass one.")
    if seal and LAYOUTS[store.layout].rolls:
        output.note(_roll(store, chosen))

    def work(**given: Any) -> Reports:
        return store.compact(topic, min_dirty_ratio=min_dirty_ratio, policy=policy, **given)

    def idle(reports: Reports) -> str:
        if not chosen:
            return (
                "No topic has compact in its cleanup_policy. Set it with "
                "cursus alter PATH TOPIC --set cleanup_policy=compact."
            )
        active = [
            f"{report.topic}-{report.partition}"
            for report in reports
            if report.note == NOTHING_SEALED and len(store.offsets(report.topic, report.partition))
        ]
        if not active:
            return f"Nothing to compact in {store.path}."
        return (
            f"{', '.join(active)}: all records are in the active segment, which compaction leaves "
            "alone. Pass --roll to seal it first."
        )

    _run(ctx, work, "Remove these records permanently?", idle=idle, **how)


def _idle(store: Store, topic: str | None, why: str) -> Callable[[Reports], str]:
    """What to say if there was nothing to do: why, and what waits in active segments."""

    def idle(reports: Reports) -> str:
        del reports
        if not LAYOUTS[store.layout].rolls:
            return f"{why}."
        active = sum(
            _sealed(store, name, number) == 0
            for name in (store.topics() if topic is None else [topic])
            for number in range(store.topic(name).partitions)
        )
        if not active:
            return f"{why}."
        waits = f"All records of {plural(active, 'partition')} are in the active segment"
        return f"{why}. {waits}: cursus roll seals it."

    return idle


def _compacted(store: Store, policy: str | None) -> list[str]:
    """The topics that compaction works on."""
    return [
        name
        for name in store.topics()
        for found in [store.topic(name)]
        if found.has_keys and "compact" in (policy or found.config(store.config).cleanup_policy)
    ]


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--below",
    "below_bytes",
    type=arguments.size_option,
    metavar="BYTES",
    help="Merge segments smaller than this (64MiB works too). Default: half of segment_bytes.",
)
@arguments.dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def merge(
    ctx: click.Context, /, store: Store, topic: str | None, below_bytes: int | None, **how: Any
) -> None:
    """Merge small sealed segments into larger ones.

    Merges the segments of TOPIC, or of all topics. No record and no offset changes.
    """

    def work(**given: Any) -> Reports:
        return store.merge(topic, below_bytes=below_bytes, **given)

    idle = _idle(
        store, topic, f"Nothing to merge in {store.path}: no neighbouring segments are small enough"
    )
    _run(ctx, work, "Merge these segments?", idle=idle, **how)


@click.command()
@arguments.with_store
@arguments.optional_topic
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    help="The codec. Default: the topic's compression.",
)
@click.option("--level", type=click.IntRange(1, 22), metavar="N", help="Compression level of zstd.")
@click.option(
    "--older-than-ms",
    type=arguments.duration_option,
    metavar="MS",
    help="Only segments whose latest record is older than this (7d works too).",
)
@arguments.dry_run
@arguments.yes
@arguments.as_json
@click.pass_context
def recompress(
    ctx: click.Context,
    /,
    store: Store,
    topic: str | None,
    compression: Compression | None,
    level: int | None,
    older_than_ms: int | None,
    **how: Any,
) -> None:
    """Rewrite sealed segments with another codec.

    Rewrites the segments of TOPIC, or of all topics. No record and no offset changes.
    """

    def work(**given: Any) -> Reports:
        return store.recompress(
            topic, compression=compression, level=level, older_than_ms=older_than_ms, **given
        )

    idle = _idle(
        store, topic, f"Nothing to recompress in {store.path}: no sealed segment has another codec"
    )
    _run(ctx, work, "Rewrite these segments?", idle=idle, **how)


def _run(
    ctx: click.Context,
    work: Callable[..., Reports],
    question: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    idle: Callable[[Reports], str],
) -> None:
    """Show what the operation would do, ask, run it, and show what it did.

    ``idle`` says why there was nothing to do.
    """

    def nothing(reports: Reports) -> bool:
        if any(report.segments_before or not report.done for report in reports):
            return False
        output.note(idle(reports))
        return True

    if dry_run or not yes:
        with MaintenanceBar() as bar:
            planned = work(dry_run=True, progress=bar.show)
        if dry_run or not as_json:
            show_reports(planned, as_json)
        if nothing(planned):
            if as_json and not dry_run:
                show_reports([], as_json)
            return
        if dry_run:
            return
        if not output.confirmed(question, yes):
            ctx.exit(output.PROBLEMS)
    with MaintenanceBar() as bar:
        reports = work(progress=bar.show)
    show_reports(reports, as_json)
    if nothing(reports):
        return
    changed = sum(report.segments_before for report in reports)
    before = size(sum(report.bytes_before for report in reports))
    after = size(sum(report.bytes_after for report in reports))
    output.note(f"{plural(changed, 'segment')} rewritten: {before} became {after}")
    if not all(report.done for report in reports):
        ctx.exit(output.PROBLEMS)
