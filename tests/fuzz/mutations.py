"""Ways to break the files of a log directory, drawn by chance; the same for the same seed."""

from __future__ import annotations

import json
import struct
from random import Random

import crc32c

from storage_core.format.frame import HEADER_BYTES, TRAILER_BYTES
from storage_core.io import json_files as metafile

_NUMBERS = (0, 1, 2, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_LARGE = (*_NUMBERS, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_JSON: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1 << 70,
    1e300,
    "",
    "../x",
    "\0",
    "x" * 300,
    [],
    {},
    [[[]]],
    "\ud800",
)


def mutated(data: bytes, rng: Random) -> bytes:
    """Some bytes, changed a few times."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = _once(data, rng)
    return data


def _once(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    some = rng.randrange(1, 40)
    how = rng.randrange(9)
    if how == 0 and data:
        bit = rng.randrange(len(data) * 8)
        return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
    if how == 1:
        return data[:at] + rng.randbytes(some) + data[at + some :]
    if how == 2:
        return data[:at] + data[at + some :]
    if how == 3:
        return data[:at] + rng.choice((rng.randbytes(some), bytes(some))) + data[at:]
    if how == 4:
        return data[:at]
    if how == 5:
        return data[:at] + struct.pack(">I", rng.choice(_NUMBERS)) + data[at + 4 :]
    if how == 6:
        return data[:at] + struct.pack(">Q", rng.choice(_LARGE)) + data[at + 8 :]
    if how == 7:
        other = rng.randrange(len(data) + 1)
        return data[:at] + data[other : other + some] + data[at + some :]
    return rng.randbytes(some * 4)


def with_right_checksums(data: bytes, rng: Random) -> bytes:
    """A segment whose first frame was changed with checksums that are right."""
    if len(data) < HEADER_BYTES + TRAILER_BYTES:
        return data
    (length,) = struct.unpack_from(">I", data, 8)
    if not HEADER_BYTES + TRAILER_BYTES <= length <= len(data):
        length = len(data)
    head = bytearray(mutated(data[: HEADER_BYTES - 4], rng)[: HEADER_BYTES - 4])
    if rng.random() < 0.5:
        head = bytearray(data[: HEADER_BYTES - 4])
    head.extend(bytes(HEADER_BYTES - 4 - len(head)))
    header = bytes(head) + struct.pack(">I", crc32c.crc32c(bytes(head)))
    body = data[HEADER_BYTES : length - TRAILER_BYTES]
    changed = mutated(body, rng) if rng.random() < 0.8 else body
    changed = changed[: len(body)].ljust(len(body), b"\0")
    trailer = struct.pack(">I", crc32c.crc32c(changed)) + data[length - 4 : length]
    return header + changed + trailer + data[length:]


def with_another_field(data: bytes, rng: Random) -> bytes:
    """A metadata file with a right checksum and contents nobody wrote."""
    fields = json.loads(data)
    fields.pop("crc32c", None)
    at, key = fields, rng.choice(sorted(fields))
    while isinstance(at[key], dict | list) and at[key] and rng.random() < 0.7:
        at = at[key]
        key = rng.choice(sorted(at)) if isinstance(at, dict) else rng.randrange(len(at))
    if rng.random() < 0.2 and isinstance(at, dict):
        del at[key]
    else:
        at[key] = rng.choice(_JSON)
    try:
        return metafile.dump(fields)
    except (ValueError, UnicodeError):
        return json.dumps(fields).encode()
