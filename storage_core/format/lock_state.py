"""The state in a partition's lock file: how the last holder of the lock left the partition.

A holder of the lock marks the state *dirty* before its first write and *clean* after it has
published. The state is never synced, and need not be. A killed process leaves the page cache, so
the next holder reads the state; a power cut changes the boot id, and then the state is ignored.

====== ==== =======================================================
offset size field (big-endian)
====== ==== =======================================================
0      8    process id of the last holder
8      4    magic ``CRSL``
12     1    format version, 1
13     1    condition: 0 clean, 1 dirty, 2 a sync failed
14     2    zero
16     16   boot id of the machine
32     8    generation, one more with every change
40     8    base offset of the active segment
48     8    its size in bytes
56     8    next offset
64     8    recovery point
72     8    when the active segment was created, microseconds since 1970
80     8    newest append time given to a record
88     4    zero
92     4    CRC32C of bytes 0 to 91
====== ==== =======================================================
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..io.checksum import crc32c

SIZE = 96
CLEAN, DIRTY, SYNC_FAILED = 0, 1, 2
_MAGIC, _VERSION = b"CRSL", 1
_WORD = struct.Struct(">Q4sBBH16sQQQQQqqI")
_CRC = struct.Struct(">I")


class PartitionState(NamedTuple):
    """How the last holder of the lock left the partition."""

    pid: int
    condition: int
    boot_id: bytes
    generation: int
    active_base: int
    active_size: int
    end_offset: int
    recovery_point: int
    created_us: int
    last_append_us: int


NEVER_USED = PartitionState(0, DIRTY, bytes(16), 0, 0, 0, 0, 0, 0, 0)


def is_of_boot(state: PartitionState, boot_id: bytes) -> bool:
    """Whether the machine has not rebooted since; without boot ids it may have."""
    return state.boot_id == boot_id and any(boot_id)


def needs_recovery(state: PartitionState, boot_id: bytes) -> bool:
    """Whether the next holder of the lock must recover the log."""
    return state.condition != CLEAN or not is_of_boot(state, boot_id)


def pack(state: PartitionState) -> bytes:
    """The bytes of a state."""
    pid, condition, boot_id, *rest = state
    word = _WORD.pack(pid, _MAGIC, _VERSION, condition, 0, boot_id, *rest, 0)
    return word + _CRC.pack(crc32c(word))


def unpack(data: bytes) -> PartitionState:
    """The state in ``data``; anything unreadable counts as dirty, which only costs a recovery."""
    if len(data) != SIZE or crc32c(data[:-4]) != _CRC.unpack_from(data, SIZE - 4)[0]:
        return NEVER_USED
    pid, magic, version, condition, _, boot_id, *rest, _ = _WORD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or condition > SYNC_FAILED:
        return NEVER_USED
    return PartitionState(pid, condition, boot_id, *rest)
