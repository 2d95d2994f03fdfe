"""Prometheus' text format: families of samples with labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OF_PARTITION = ("topic", "partition")
_OF_GROUP = ("group", "topic", "partition")


class Family(NamedTuple):
    """A metric: its labels, and what it says. All are gauges: they are read off the store."""

    labels: tuple[str, ...]
    help: str


FAMILIES: Mapping[str, Family] = {
    "cursus_store_info": Family(("layout", "version"), "The layout, and the release that looks."),
    "cursus_topics": Family((), "Number of topics."),
    "cursus_unreadable": Family(
        ("kind", "name", "code"),
        "1 for a topic, partition or group that could not be read. Run check.",
    ),
    "cursus_partition_start_offset": Family(_OF_PARTITION, "First offset in the log."),
    "cursus_partition_end_offset": Family(
        _OF_PARTITION, "High watermark. Its rate() is offsets per second."
    ),
    "cursus_partition_size_bytes": Family(_OF_PARTITION, "Bytes of the segments, without indexes."),
    "cursus_partition_segments": Family(_OF_PARTITION, "Number of segments."),
    "cursus_partition_records_per_second": Family(
        _OF_PARTITION, "Records with a time in the last five minutes, for each second."
    ),
    "cursus_partition_bytes_per_second": Family(
        _OF_PARTITION, "Bytes of log with a time in the last five minutes, for each second."
    ),
    "cursus_partition_recovery_due": Family(
        _OF_PARTITION, "1 if the last writer crashed and the next one recovers the partition."
    ),
    "cursus_partition_skipped_records": Family(
        _OF_PARTITION, "Damaged records that were given up with skip."
    ),
    "cursus_group_committed_offset": Family(_OF_GROUP, "Next offset that the group reads."),
    "cursus_group_lag_records": Family(
        _OF_GROUP, "Offsets between the group and the high watermark."
    ),
    "cursus_group_lag_bytes": Family(_OF_GROUP, "Bytes of log that the group has not read."),
    "cursus_group_lag_seconds": Family(
        _OF_GROUP, "Age of the first record that the group has not read; 0 without lag."
    ),
    "cursus_group_lost_records": Family(
        _OF_GROUP, "Offsets that were removed before the group read them."
    ),
    "cursus_pending_commits": Family((), "Commits that are decided and not finished."),
    "cursus_pending_commit_oldest_seconds": Family((), "Age of the oldest pending commit."),
    "cursus_staging_jobs": Family((), "Jobs with staged files: running, or left by a crash."),
    "cursus_staging_bytes": Family((), "Bytes of their files."),
    "cursus_staging_oldest_seconds": Family((), "Since when no file of the oldest job changed."),
    "cursus_garbage_objects": Family((), "Objects that cursus gc would delete now."),
    "cursus_garbage_bytes": Family((), "Bytes of these objects."),
    "cursus_collection_seconds": Family((), "How long it took to gather these numbers."),
}
"""All metrics, in the order in which they are printed."""


class Sample(NamedTuple):
    """A value of a metric, with the values of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def exposition(samples: Iterable[Sample]) -> str:
    """The samples as text, by family. A family without samples is left out."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name, family in FAMILIES.items():
        if name in by_name:
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} gauge"]
            lines += [_line(sample, family) for sample in by_name[name]]
    return "".join(f"{line}\n" for line in lines)


def _line(sample: Sample, family: Family) -> str:
    pairs = zip(family.labels, sample.labels, strict=True)
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    # repr: the shortest text that is this number, also for offsets that a float cannot hold.
    return (
        f"{sample.name}{{{labels}}} {sample.value!r}"
        if labels
        else (f"{sample.name} {sample.value!r}")
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
