"""What the maintenance commands share: a table of their reports, and a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...maintenance.report import UpkeepProgress, UpkeepReport
from ..common import output
from ..common.formatting import number, size


def show_reports(reports: Sequence[UpkeepReport], as_json: bool) -> None:
    """Print what an operation did, or would do."""
    if as_json:
        output.show_json([report_object(report) for report in reports])
    elif reports:
        output.table(
            ["topic", ">partition", ">segments", ">size", ">saved", ">records\nremoved", "note"],
            [
                [
                    report.topic,
                    str(report.partition),
                    f"{report.segments_before} → {report.segments_after}",
                    f"{size(report.bytes_before)} → {size(report.bytes_after)}",
                    _signed(report.saved_bytes),
                    number(report.records_removed),
                    report.note or "–",
                ]
                for report in reports
            ],
        )


def report_object(report: UpkeepReport) -> dict[str, Any]:
    """A report as JSON shows it."""
    return {**asdict(report), "saved_bytes": report.saved_bytes}


def _signed(count: int) -> str:
    return f"-{size(-count)}" if count < 0 else size(count)


class MaintenanceBar:
    """A progress bar for an operation on several partitions."""

    def __init__(self) -> None:
        self._bar = output.progress_bar()
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> MaintenanceBar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def show(self, now: UpkeepProgress) -> None:
        """Show the progress of the operation."""
        self._bar.update(
            self._task,
            completed=now.done_bytes,
            total=max(now.total_bytes, now.done_bytes, 1),
            description=f"{now.action} {now.topic}-{now.partition}",
        )
