"""Seeded bugs of the ``watermark`` file: how slots are written, chosen and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage_core.io.durable import replace_file, write_all
from storage_core.metadata import high_watermark, slots
from storage_core.metadata.slots import Slots, Watermark
from storage_core.vfs import Vfs
from tests.crash.bugs.mutants_of_checks import unchecked
from tests.crash.bugs.mutating import Mutant
from tests.support.patching import replaced

_FILE = "watermark"
_unpack, _newest, _write_slots = slots.unpack, high_watermark._newest, high_watermark._write_slots
_position = slots.position


def _over_the_newest(generation: int, half: int) -> int:
    return _position(generation + 1, half)


def _first_whole(data: bytes) -> Slots | None:
    """Whichever slot comes first."""
    found = _unpack(data)
    if found is None or not found.half or not found.has_both_slots:
        return found
    first = _unpack(data[: found.half] + bytes(found.half))
    return found if first is None else first._replace(has_both_slots=True)


def _one_look(vfs: Vfs, fd: int, topic_uuid: bytes) -> Slots | None:  # noqa: ARG001
    return _unpack(vfs.pread(fd, vfs.fstat(fd).size, 0))


def _look_as_if_whole(vfs: Vfs, fd: int, topic_uuid: bytes) -> Slots | None:
    found = _newest(vfs, fd, topic_uuid)
    return None if found is None else found._replace(has_both_slots=True)


def _always_one(vfs: Vfs, fd: int, current: Slots, wanted: Watermark, count: int) -> bool:  # noqa: ARG001
    return _write_slots(vfs, fd, current, wanted, 1)


def _in_place(vfs: Vfs, path: str, data: bytes, **_: Any) -> None:
    fd = vfs.open(path, "write")
    write_all(vfs, fd, [data], 0)
    vfs.close(fd)


def _published_lower(
    vfs: Vfs, topic: str, topic_uuid: bytes, ends: Mapping[int, int], timeout_ms: int
) -> None:
    high_watermark.publish(vfs, topic, topic_uuid, ends, timeout_ms)
    high_watermark.make_durable(vfs, topic, topic_uuid, timeout_ms)


SLOTS: dict[str, Mutant] = {
    "the checksum of slots is not compared": Mutant(
        unchecked(slots._unpack_slot, slots._unpack_earlier), f"wrong bytes of {_FILE}"
    ),
    "readers believe a slot that is being written": Mutant(
        unchecked(slots._unpack_slot), "torn reads"
    ),
    "the newest slot is overwritten": Mutant(
        replaced(slots.position, _over_the_newest, by=(high_watermark._write_slots,)), "torn reads"
    ),
    "the generation of slots is not compared": Mutant(
        replaced(slots.unpack, _first_whole), "torn reads"
    ),
    "readers look once": Mutant(replaced(high_watermark._newest, _one_look), "torn reads"),
    "the file is replaced in place": Mutant(
        replaced(replace_file, _in_place, by=(high_watermark._replace,)), "torn reads"
    ),
    "writers believe the slot that a damaged one left": Mutant(
        replaced(high_watermark._newest, _look_as_if_whole, by=(high_watermark.publish,)),
        "damaged slots",
    ),
    "a commit of several partitions is in one slot": Mutant(
        replaced(high_watermark._write_slots, _always_one), "stale slots"
    ),
    "lowered high watermarks stay in the other slot": Mutant(
        replaced(high_watermark.lower, _published_lower), "stale slots"
    ),
}
