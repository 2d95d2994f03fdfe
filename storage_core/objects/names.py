"""Names of objects: data by the hour of its upload, commits and checkpoints by their number."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from ..commit.staging import SUFFIX
from ..vfs import Vfs

DATA, LOGS = "data", "logs/"
MANIFEST_SUFFIX = ".manifest"
COMMIT, CHECKPOINT = ".commit", ".checkpoint"
_NUMBERED = re.compile(r"(\d{20})(\.commit|\.checkpoint)")
_HOUR = "%Y%m%d%H"


def time_text(moment_us: int) -> str:
    """A time as documents write it; texts are ordered as the times are."""
    moment = datetime.fromtimestamp(moment_us / 1e6, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def hour_of(moment_us: int) -> str:
    """The hour prefix of data that is uploaded at a time."""
    return datetime.fromtimestamp(moment_us / 1e6, tz=UTC).strftime(_HOUR)


def hour_start_us(hour: str) -> int:
    """When an hour prefix began."""
    return int(datetime.strptime(hour, _HOUR).replace(tzinfo=UTC).timestamp()) * 10**6


def new_key(clock: Vfs, job: str = "", suffix: str = SUFFIX) -> str:
    """The name of a new data object; without a job, one that no abort of a job can delete."""
    hour, name = f"{DATA}/{hour_of(clock.now_us())}/", f"{uuid.uuid4()}{suffix}"
    return f"{hour}{job}/{name}" if job else f"{hour}{name}"


def parse_listing(prefix: str, keys: Iterable[str]) -> tuple[list[int], list[int]]:
    """The numbers of commits and of checkpoints in a listing of a log, rising."""
    commits, checkpoints = set[int](), set[int]()
    for key in keys:
        found = _NUMBERED.fullmatch(key.removeprefix(prefix))
        if found is not None:
            (commits if found[2] == COMMIT else checkpoints).add(int(found[1]))
    return sorted(commits), sorted(checkpoints)
