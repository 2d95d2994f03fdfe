"""Wrong bits in the files of a typed topic, and parts of other columns: noticed, or no effect.

A reader asks for the columns, for all rows, for one column and for rows that match. With a wrong
bit anywhere each answer is the same, or an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random

import pyarrow as pa

from storage_core import StagedPart, Store
from storage_core.errors import InvalidCommitError, StorageError
from storage_core.format.frame import HEADER_BYTES, MAGIC
from storage_core.io.durable import create_file
from storage_core.schema import document
from tests.crash.breakers.wrong_bytes import slot_bytes
from tests.crash.breakers.wrong_files import write
from tests.crash.explorer.disk import kept
from tests.crash.explorer.explorer import recover
from tests.crash.explorer.invariants import CONFIG, History, World, check_recovered, new_store
from tests.crash.explorer.recording import MemoryVfs
from tests.crash.explorer.typed_rows import TYPED, table, wanted
from tests.support.stores import flip
from tests.support.typed.typed_topics import EVENTS, stage_rows

HEAD = "the head of .log"
KINDS = (
    HEAD,
    "schemas/00000001.json",
    "schemas/00000003.json",
    "published.json",
    "watermark",
    ".log",
)
_QUERIES = ("id = 1", "user < 'c'", "b = 7")
RENAMED = pa.schema([pa.field("price", pa.int64(), nullable=False), pa.field("city", pa.string())])


def typed_store() -> MemoryVfs:
    """Frames of three schema versions; one wrong bit of statistics may exclude some rows."""
    vfs = new_store({"t": 1}, **TYPED)
    world = World(vfs, History(), CONFIG)
    world.append("t", 0, b"a", b"b")
    world.commit(world.stage("app", 1, {("t", 0): 1}, columns="a"))
    world.add_columns("t", "b")
    schema = world.store.schema("t")
    assert schema is not None
    ids = pa.array([1, 6], pa.int64())
    world.store.append_table("t", table(schema, [b"x", b"y"]).set_column(0, EVENTS.field(0), ids))
    world.store.close()
    return vfs.power_cut(kept, b"a boot of its own")


def answers(vfs: MemoryVfs) -> list[object]:
    """What a fresh reader is answered; None where the answer is an error.

    Raises:
        AssertionError: the error is one that no program can understand.
    """
    store = Store(vfs, CONFIG)

    def rows(columns: list[str] | None = None, where: str | None = None) -> object:
        return store.scan("t", columns=columns, where=where).to_table().to_pylist()

    asked: list[Callable[[], object]] = [lambda: store.schema("t"), rows, lambda: rows(["user"])]
    asked += [lambda where=where: rows(where=where) for where in _QUERIES]  # type: ignore[misc]
    found = list[object]()
    for ask in asked:
        try:
            found.append(ask())
        except StorageError:
            found.append(None)
        except (ArithmeticError, OSError, ValueError) as error:
            raise AssertionError(f"an untyped error: {error!r}") from error
    return found


def flipped(vfs: MemoryVfs, kind: str, step: int) -> Iterator[tuple[str, int]]:
    """The same store again and again, each time with another ``step``th bit wrong."""
    for path, file in vfs.top.files().items():
        if path.endswith(kind.removeprefix("the head of ")):
            sound, first = file.data, 0
            if kind.startswith("the head of "):
                # What tells a reader that it may skip the last frame.
                first = 8 * (sound.rindex(MAGIC) + HEADER_BYTES)
            last = 8 * (sound.rindex(b"}") + 1) if first else 8 * len(sound)
            bits = list(range(first, last))
            if kind == "watermark":
                bits = [8 * at + bit for at in slot_bytes(sound) for bit in range(8)]
            for bit in bits[::step]:
                write(file, flip(sound, bit))
                yield path, bit
            write(file, sound)


def wrong_bits(kind: str, step: int = 1) -> Counter[str]:
    """Read with wrong bits in these files; how many were noticed, and how many had no effect.

    Raises:
        AssertionError: a reader got something else than what was written.
    """
    vfs, outcomes = typed_store(), Counter[str]()
    expected = answers(vfs)
    assert None not in expected
    for path, bit in flipped(vfs, kind, step):
        found = answers(vfs)
        for one, due in zip(found, expected, strict=True):
            assert one in (None, due), f"bit {bit} of {path}: {one}, not {due}"
        outcomes["noticed" if None in found else "no effect"] += 1
    return outcomes


def written_with_wrong_bits(kind: str, step: int) -> Counter[str]:
    """Write with wrong bits in these files; how many writers were refused.

    Raises:
        AssertionError: a writer went on, and rows or columns are not what they should be.
    """
    vfs, outcomes = typed_store(), Counter[str]()
    expected = answers(vfs)
    for path, bit in flipped(vfs, kind, step):
        left = vfs.power_cut(kept, b"%016d" % bit)
        with suppress(StorageError):
            Store(left, CONFIG).alter_topic("t", add_columns=wanted("c"))
            outcomes["written"] += 1
        for one, due in zip(answers(left)[2:], expected[2:], strict=True):
            assert one in (None, due) or _with_c(due) == one, f"bit {bit} of {path}: {one}"
    return outcomes


def _with_c(rows: object) -> object:
    return [{**row, "c": None} for row in rows] if isinstance(rows, list) else rows


def parts_of_other_columns() -> None:
    """Rows staged for a topic of the same name, and parts that name another version than frames.

    Raises:
        AssertionError: a commit took them.
    """
    vfs = new_store({"t": 1}, **TYPED)
    store = Store(vfs, CONFIG)
    schema = store.schema("t")
    assert schema is not None
    other = stage_rows(store, "other", schema, (0,))
    registered = store.register_schema("t", wanted("a"), add=True)
    checksum = document.checksum(registered, (), None)
    forged = [replace(part, schema=2, schema_checksum=checksum) for part in other]
    _must_refuse(store, "other", forged)
    store.delete_topic("t")
    store.create_topic("t", 1, schema=RENAMED)
    _must_refuse(store, "other", other)


def old_intents() -> None:
    """The intent of a commit comes back after another one published more columns.

    Raises:
        AssertionError: a column is gone.
    """
    vfs = new_store({"t": 1}, **TYPED)
    world, kept_intents = World(vfs, History(), CONFIG), dict[str, bytes]()

    def keep(kind: str, path: str) -> None:
        if kind == "unlink" and path.startswith("meta/intents/"):
            kept_intents[path] = vfs.top.files()[path].data

    vfs.hook = keep
    world.commit(world.stage("app", 1, {("t", 0): 1}, columns="a"))
    vfs.hook = None
    world.add_columns("t", "b")
    ((path, data),) = kept_intents.items()
    create_file(vfs, path, data)
    left = vfs.kill()
    check_recovered(left, recover(left, world.history, Random(0)), world.history)


def _must_refuse(store: Store, job: str, parts: Sequence[StagedPart]) -> None:
    try:
        store.commit(job, parts)
    except InvalidCommitError:
        return
    raise AssertionError(f"a commit took {parts}")
