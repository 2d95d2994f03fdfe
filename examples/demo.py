"""A tour of the log engine in a few seconds: write, read, crash, recover.

Run it with ``make demo``. Everything happens in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage_core import Store

TOPIC = "orders"
OPENING_TIME = datetime(2025, 3, 1, 9, 0, tzinfo=UTC)


def main() -> None:
    """Walk through the steps, each in its own function."""
    with tempfile.TemporaryDirectory(prefix="cursus-demo-") as directory:
        path = Path(directory) / "log"
        create_and_append(path)
        read_back(path)
        acknowledged = crash_a_writer(path)
        look_after_the_crash(path, acknowledged)
        recover(path, acknowledged)
    say("Done. The directory of this demo is gone again.")


def create_and_append(path: Path) -> None:
    title("1. Create a store and a topic, and append")
    with Store.open(path, create=True) as store:
        store.create_topic(TOPIC, partitions=2)
        say(f"A store is a plain directory. The topic {TOPIC!r} has 2 partitions.")
        written = store.append(
            TOPIC,
            0,
            values=[f"order {number}".encode() for number in range(100)],
            keys=[f"customer {number % 7}".encode() for number in range(100)],
            timestamps=[OPENING_TIME + timedelta(minutes=number) for number in range(100)],
        )
        say(f"Appended 100 records: offsets {written.start} to {written.end - 1}.")
        say("append() came back only after the disk had them (fsync), so they survive a power cut.")
    say("The files:")
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.stat().st_size:
            print(f"     {file.relative_to(path)}  ({file.stat().st_size} bytes)")


def read_back(path: Path) -> None:
    title("2. Read back, by offset and by time")
    with Store.open(path) as store:
        (batch,) = store.read(TOPIC, 0, start=40, max_records=3)
        say("Three records from offset 40, as an Arrow batch:")
        for row in batch.to_pylist():
            print(f"     offset {row['offset']}  {row['timestamp']:%H:%M}  {row['value'].decode()}")
        ten = OPENING_TIME + timedelta(hours=1)
        offset = store.offset_for_timestamp(TOPIC, 0, ten)
        say(f"The first order at or after {ten:%H:%M} has offset {offset}.")


def crash_a_writer(path: Path) -> int:
    """Kill a process in the middle of an append; return how many records it had acknowledged."""
    title("3. Crash: kill a writer in the middle of an append")
    command = [sys.executable, __file__, "--writer", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = int(writer.stdout.readline())
        say(
            f"Another process appended; it was told that offsets up to {acknowledged - 1} are safe."
        )
        size = log_bytes(path)
        while log_bytes(path) == size and writer.poll() is None:
            time.sleep(0.0005)
        writer.kill()
        writer.wait()
    if writer.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended by itself, with {writer.returncode}")
    grown = log_bytes(path) - size
    say(f"Then it began a large append. We killed it (kill -9) when {grown:,} bytes were written.")
    oldest, newest = min(segments(path)), max(segments(path))
    with newest.open("ab") as log:
        log.write(oldest.read_bytes()[:1000])
    say("To make it worse, we left half a frame at the end of the log, as a power cut may do.")
    return acknowledged


def look_after_the_crash(path: Path, acknowledged: int) -> None:
    title("4. Readers do not mind")
    with Store.open(path) as store:
        end = store.offsets(TOPIC, 0).end
        rows = sum(batch.num_rows for batch in store.read(TOPIC, 0))
        say(f"Reading still works: {rows} records, exactly the {acknowledged} acknowledged ones.")
        require(end == rows == acknowledged)
        for problem in store.check():
            say(f"check() reports ({problem.severity}): {problem.message}")


def recover(path: Path, acknowledged: int) -> None:
    title("5. Recover")
    with Store.open(path) as store:
        report = next(report for report in store.repair() if report.partition == 0)
        say("The next writer recovers by itself; repair() does it now and tells what it did:")
        say(f"it cut {report.cut_bytes} torn bytes and saved them as {report.saved_as};")
        extra = report.end_offset - acknowledged
        say(f"it kept {extra} records that were whole, though nobody had been told so yet.")
        written = store.append(TOPIC, 0, [b"life goes on"])
        say(f"The next append got offset {written.start}: no gap, no offset used twice.")
        offsets = [
            offset for batch in store.read(TOPIC, 0) for offset in batch["offset"].to_pylist()
        ]
        require(offsets == list(range(written.end)) and extra >= 0 and report.cut_bytes > 0)
        require(store.check() == [])
        say(f"All {len(offsets)} offsets are there, in order, and check() finds nothing wrong.")


def write_until_killed(path: str) -> None:
    """The other process: one append that is acknowledged, and then one that is too long to live."""
    with Store.open(path) as store:
        done = store.append(TOPIC, 0, [b"a quick one"] * 50)
        print(done.end, flush=True)
        store.append(TOPIC, 0, [os.urandom(1000)] * 200_000)


def segments(path: Path) -> list[Path]:
    """The log files of partition 0."""
    return list((path / "topics" / TOPIC / "0" / "segments").glob("*.log"))


def log_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in segments(path))


def require(condition: bool) -> None:
    if not condition:
        raise RuntimeError("the demo did not find what it promised: please report this as a bug")


def title(text: str) -> None:
    print(f"\n{text}")


def say(text: str) -> None:
    print(f"   {text}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--writer"]:
        write_until_killed(sys.argv[2])
    else:
        main()
