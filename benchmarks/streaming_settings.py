"""What Spark's settings gain in the two files that each micro-batch writes into its checkpoint.

Most of a small micro-batch is these files. Some settings apply only when a session starts, so each
has a process. The processes alternate like the sides of any other comparison. Runs only by name.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from . import data
from .data import Sizes
from .measure import Row, Samples, interleaved, time_row

ON_REQUEST = True
_ROOT = Path(__file__).resolve().parent.parent
_BATCHES = {data.FULL: 40, data.QUICK: 20, data.TINY: 3}
_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_BY_FILE_SYSTEM = {"spark.sql.streaming.checkpointFileManagerClass": _MANAGER}
_NO_CHECKSUM = {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}
_RAW = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}
SETTINGS: dict[str, dict[str, str]] = {
    "FileSystemBasedCheckpointFileManager": _BY_FILE_SYSTEM,
    "no Spark checksum files": _NO_CHECKSUM,
    "the manager, no Spark checksum files": {**_BY_FILE_SYSTEM, **_NO_CHECKSUM},
    "the manager, no checksum files at all": {**_BY_FILE_SYSTEM, **_NO_CHECKSUM, **_RAW},
}


def measure(sizes: Sizes, directory: Path) -> Iterator[Row]:
    """The median micro-batch of a trivial source under each setting, and its checkpoint files."""
    rounds = 1 if sizes is data.TINY else 2
    files: dict[str, list[float]] = {name: [] for name in ("defaults", *SETTINGS)}

    def session(name: str) -> float:
        settings = [f"{key}={value}" for key, value in SETTINGS.get(name, {}).items()]
        arguments = [str(directory), str(_BATCHES[sizes]), *settings]
        command = [sys.executable, "-m", "benchmarks.workers.streaming_settings_worker", *arguments]
        done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
        whole, written = map(float, done.stdout.split()[-2:])
        files[name].append(written)
        return whole

    found = interleaved({name: partial(session, name) for name in files}, rounds, warmups=0)
    written = {name: Samples(tuple(seconds)) for name, seconds in files.items()}
    for name in SETTINGS:
        for what, times in (("micro-batch", found), ("checkpoint files of it", written)):
            yield time_row(f"{what}, {name}", times[name], times["defaults"], None, name="defaults")
