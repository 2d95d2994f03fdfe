"""The high watermark of every partition of a topic, in one small file of two slots.

A writer publishes after it synced the records: it writes the slot that is not the newest one, in
place, and does not sync it. A reader takes no lock, takes the newest whole slot, and reads no
record at or above the high watermark. Nobody ever writes over the newest whole slot. So a reader
always finds one, and the high watermarks that it finds never go back, also if a writer is killed
in the middle of a slot.

After a power cut each slot may be old or torn, but none is ever above the log end. The exception is
``fsync=none``, where records may be lost: see ``lower``.

A file that needs larger slots, or is of an earlier release, is replaced by a rename.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest

from ..errors import LockTimeoutError
from ..io.durable import opened, parent, replace_file, write_all
from ..io.locks import locked
from ..vfs import Vfs
from . import slots
from .slots import Slots, Watermark

_MAX_BYTES = 2 * (8 * slots.MAX_PARTITIONS + 8192)


def path_of(topic: str) -> str:
    """The path of a topic's ``watermark`` file."""
    return f"topics/{topic}/watermark"


def lock_of(topic: str) -> str:
    """The lock over a topic's ``watermark`` and ``topic.json`` files. Processes hold it briefly.

    ``publish`` syncs nothing under it, unless it replaces the file.
    """
    return f"topics/{topic}/lock"


def read(
    vfs: Vfs, topic: str, topic_uuid: bytes, timeout_ms: int | None = None
) -> Watermark | None:
    """The current high watermarks, for writers; None if the file is lost.

    It is lost if it is missing, damaged or of another topic, and also if one slot is torn: that one
    may have been the newest, and then it alone said what the partitions of other writers have.

    A slot may also look torn because it is being written. With ``timeout_ms`` this waits for its
    writer, so the caller does not hold the topic's lock.
    """
    found = newest(vfs, topic, topic_uuid)
    if found is not None and not found.has_both_slots and timeout_ms is not None:
        with locked(vfs, lock_of(topic), timeout_ms):
            found = newest(vfs, topic, topic_uuid)
    return found.watermark if found is not None and found.has_both_slots else None


def newest(vfs: Vfs, topic: str, topic_uuid: bytes) -> Slots | None:
    """The newest whole slot, for readers; None if there is none.

    It is not older than any that was whole when this call began.
    """
    try:
        with opened(vfs, path_of(topic), "read") as fd:
            return _newest(vfs, fd, topic_uuid)
    except FileNotFoundError:
        return None


def _newest(vfs: Vfs, fd: int, topic_uuid: bytes) -> Slots | None:
    """Read until both slots are whole, or until two reads are equal.

    A slot that is not whole may be written right now, and a read is no instant: while it lasts, one
    writer may finish a slot and the next one begin the other. Then the slot that was read whole may
    be older than one that was whole before. Two equal reads show that it is the newest: nobody
    writes over the other slot before this one has changed.
    """
    before = None
    while True:
        data = vfs.pread(fd, slots.USUAL_BYTES + 1, 0)
        if len(data) > slots.USUAL_BYTES:
            data = vfs.pread(fd, min(vfs.fstat(fd).size, _MAX_BYTES), 0)
        found = slots.unpack(data)
        if (found is not None and found.has_both_slots) or data == before:
            break
        before = data
    return found if found is not None and found.watermark.topic_uuid == topic_uuid else None


def publish(
    vfs: Vfs,
    topic: str,
    topic_uuid: bytes,
    ends: Mapping[int, int],
    timeout_ms: int,
    *,
    schema: int | None = None,
    both: bool = False,
) -> bool:
    """Set the high watermarks of some partitions in one step; False if the file is lost (``read``).

    ``schema`` publishes a schema version in the same step. A later one that is published already
    stays. The caller then holds the lock of partition 0 too.

    ``both`` writes both slots, even if they have these values, for ``make_durable``: what a power
    cut may leave after later appends then has these values too. And a sync of what the file has
    already may have failed.

    The caller holds the locks of these partitions and has synced the records.
    """
    with locked(vfs, lock_of(topic), timeout_ms):
        try:
            with opened(vfs, path_of(topic), "write") as fd:
                current = _newest(vfs, fd, topic_uuid)
                if current is None or not current.has_both_slots:
                    return False
                known = current.watermark
                wanted = known.raised(ends, _later(known.schema, schema))
                if wanted == known and not both:
                    return True
                if _write_slots(vfs, fd, current, wanted, 2 if both else 1):
                    return True
        except FileNotFoundError:
            return False
        _replace(vfs, topic, wanted, current.generation + 1)
        return True


def _write_slots(vfs: Vfs, fd: int, current: Slots, wanted: Watermark, count: int) -> bool:
    """Write the next slots in turn, so the newest one is not touched before there is a newer one.

    False if they do not fit into the file.
    """
    for generation in range(current.generation + 1, current.generation + 1 + count):
        slot = slots.pack_slot(wanted, generation)
        if len(slot) > current.half:
            return False
        write_all(vfs, fd, [slot], slots.position(generation, current.half))
    return True


def rebuild(
    vfs: Vfs,
    topic: str,
    topic_uuid: bytes,
    ends: Mapping[int, int],
    timeout_ms: int,
    schema: int | None = None,
) -> None:
    """Rewrite the file. The caller holds the locks of all partitions that it knows.

    Values of partitions that another process added in the meantime stay.
    """
    with locked(vfs, lock_of(topic), timeout_ms):
        found = newest(vfs, topic, topic_uuid)
        known, generation = Watermark(topic_uuid, ()), 0
        if found is not None:
            known, generation = found.watermark, found.generation + 1
        _replace(vfs, topic, known.raised(ends, _later(known.schema, schema)), generation)


def lower(
    vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int], timeout_ms: int
) -> None:
    """Lower high watermarks that exceed the log end, durably.

    This happens with ``fsync=none``, where a power cut takes published records. It comes before the
    next append: readers would see those records before they are published. No slot may keep the
    higher values: after another power cut it may be the only whole one.
    """
    current = read(vfs, topic, topic_uuid, timeout_ms)
    if current is None or all(current.end(partition) <= end for partition, end in ends.items()):
        return
    with locked(vfs, lock_of(topic), timeout_ms):
        found = newest(vfs, topic, topic_uuid)
        if found is not None:
            known = found.watermark
            _replace(vfs, topic, known.raised(ends, known.schema), found.generation + 1)


def make_durable(vfs: Vfs, topic: str, topic_uuid: bytes, timeout_ms: int) -> None:
    """Sync the file, so that a power cut cannot lower the high watermarks.

    If the sync fails, the kernel may drop the pages, and older values of all partitions would come
    back. So a new file with what readers saw takes the place of this one before the error is
    raised.
    """
    path = path_of(topic)
    before = newest(vfs, topic, topic_uuid)
    try:
        with opened(vfs, path, "read") as fd:
            vfs.fsync(fd)
    except OSError:
        with suppress(OSError, LockTimeoutError), locked(vfs, lock_of(topic), timeout_ms):
            _keep(vfs, topic, topic_uuid, before)
        raise
    vfs.fsync_dir(parent(path))


def _keep(vfs: Vfs, topic: str, topic_uuid: bytes, before: Slots | None) -> None:
    after = newest(vfs, topic, topic_uuid)
    known = [found.watermark for found in (before, after) if found is not None]
    if known:
        rows = [found.ends for found in known]
        ends = dict(enumerate(map(max, zip_longest(*rows, fillvalue=0))))
        schema = _later(known[0].schema, known[-1].schema)
        kept = Watermark(topic_uuid, ()).raised(ends, schema)
        replace_file(vfs, path_of(topic), slots.pack(kept), sync=False)


def _later(published: int | None, wanted: int | None) -> int | None:
    """The later schema version: the intent of an earlier one may come back after a power cut."""
    known = [version for version in (published, wanted) if version is not None]
    return max(known, default=None)


def _replace(vfs: Vfs, topic: str, watermark: Watermark, generation: int) -> None:
    """Put a new file in the place of the old one in one step. The caller holds the topic's lock."""
    replace_file(vfs, path_of(topic), slots.pack(watermark, generation))
