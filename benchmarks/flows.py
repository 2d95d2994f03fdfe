"""``python -m benchmarks.flows``: how many places of the code each of six flows passes.

A flow runs once to warm up and once under the interpreter's profile hook. *Files* are the files of
ours that it enters; *calls* are the different calls from a function of one file to a function of
another; *folders* and *passes* are the same for folders. Calls into ``vfs`` are left out: every
flow ends there. The figures depend on the code alone, so they stand in docs/architecture.md.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import BinaryType, StructField, StructType

from cursus_spark.datasource import CursusDataSource
from storage_core import DiskHandler, Store

ROOT = Path(__file__).resolve().parent.parent
_OURS = tuple(f"{ROOT / package}/" for package in ("storage_core", "cursus_spark"))
_LEFT_OUT = ("/vfs/", "__init__.py")
_TOPIC = "flows"
_ROWS = pa.RecordBatch.from_pydict({"key": [b"a", b"b", b"c"] * 100, "value": [b"value"] * 300})
_SINK = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


class Passed(NamedTuple):
    """What one flow passed."""

    calls: int
    files: int
    passes: int
    folders: int


def passed(flow: Callable[[], object]) -> Passed:
    """Run a flow twice, and count what the second run passes."""
    flow()
    codes: set[CodeType] = set()
    calls: set[tuple[CodeType, CodeType]] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _is_ours(frame.f_code):
            codes.add(frame.f_code)
            caller = frame.f_back
            while caller is not None and not _is_ours(caller.f_code):
                caller = caller.f_back
            if caller is not None:
                calls.add((caller.f_code, frame.f_code))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        flow()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    between = [(a, b) for a, b in calls if a.co_filename != b.co_filename]
    passes = {(_folder(a), _folder(b)) for a, b in between if _folder(a) != _folder(b)}
    files = {code.co_filename for code in codes}
    return Passed(len(between), len(files), len(passes), len({_folder(code) for code in codes}))


def _is_ours(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith(_OURS) and not any(part in name for part in _LEFT_OUT)


def _folder(code: CodeType) -> str:
    """The folder of a file; a file at the top of a package is a place of its own."""
    parts = Path(code.co_filename).relative_to(ROOT).parts
    return "/".join(parts[:2])


def flows(directory: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Six flows, each as a function that may be called again and again."""
    log = directory / "log"
    options = {"path": str(log), "topic": _TOPIC, "subscribe": _TOPIC, "numPartitions": "2"}
    wanted = {key: options[key] for key in ("path", "subscribe")}
    written = {key: options[key] for key in ("path", "topic", "numPartitions")}

    def keyed_write() -> None:
        writer = CursusDataSource(written).writer(_SINK, overwrite=False)
        writer.commit([writer.write(iter([_ROWS]))])

    def batch_read() -> None:
        source = CursusDataSource(wanted)
        reader = source.reader(source.schema())
        for part in reader.partitions():
            list(reader.read(part))

    stream: list[DataSourceStreamReader] = []

    def micro_batch() -> None:
        if not stream:
            source = CursusDataSource({**wanted, "startingOffsets": "earliest"})
            stream.append(source.streamReader(source.schema()))
        start = stream[0].initialOffset()
        end = stream[0].latestOffset(start, stream[0].getDefaultReadLimit())
        for part in stream[0].partitions(start, end):
            list(stream[0].read(part))

    def handler_append() -> None:
        with Store.open(log) as store, DiskHandler(store, _TOPIC, 0) as handler:
            handler.append(b"value").result()

    def recovery() -> None:
        (log / "topics" / _TOPIC / "0" / "lock").write_bytes(b"")
        with Store.open(log) as store:
            store.append(_TOPIC, 0, [b"value"])

    def broker_read() -> None:
        for part in Store.open(directory / "rustlog").read(_TOPIC, 0):
            part.validate()

    with Store.open(directory / "rustlog", layout="rustlog", create=True) as store:
        store.create_topic(_TOPIC)
        store.append(_TOPIC, 0, [b"value"] * 100)
    yield "keyed Spark write", keyed_write
    yield "batch read", batch_read
    yield "micro-batch", micro_batch
    yield "`DiskHandler.append`", handler_append
    yield "recovery", recovery
    yield "read of a broker's directory", broker_read


def main() -> None:
    print("| flow | calls between files | files | passes between folders | folders |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for name, flow in flows(Path(directory)):
            found = passed(flow)
            print(f"| {name} | {found.calls} | {found.files} | {found.passes} | {found.folders} |")


if __name__ == "__main__":
    main()
