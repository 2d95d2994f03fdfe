"""Lengths that ask for all memory: refused before anything of that size is allocated."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import crc32c
import pyarrow as pa
import pytest

from storage_core import Store
from storage_core.brokers.codecs.rows import CURSUS, CURSUS_BROKER, RUSTLOG, RowFormat, walk_scalar
from storage_core.config import CODECS
from storage_core.errors import BrokenFrameError, StorageError
from storage_core.format import lock_state as state
from storage_core.format.compression import codec_of
from storage_core.format.frame import (
    HEADER_BYTES,
    RECORDS,
    TYPED,
    FrameHeader,
    decode_body,
    draft_frame,
    finish_frame,
    pack_header,
    unpack_header,
)
from storage_core.metadata import slots
from storage_core.segments import deletion_markers
from tests.support.paths import ROOT
from tests.support.stores import TOPIC, columns_of, make_store, reopen, segment

LITTLE = 32 << 20


@pytest.fixture(autouse=True)
def little_memory() -> object:
    """No test of this file may take more than a little memory, in Python or in Arrow."""
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < LITTLE
    assert pa.total_allocated_bytes() - before < LITTLE


def header(**changes: int) -> FrameHeader:
    frame = finish_frame(
        draft_frame(
            columns_of([b"value"]), relative_offset=0, recovery_point=0, compression="zstd", level=1
        )
    )
    return frame.header._replace(**changes)


@pytest.mark.row(23)
@pytest.mark.parametrize("field", ["length", "body_length", "raw_length"])
@pytest.mark.parametrize("claim", [(1 << 30) + 8, (1 << 31) - 8, (1 << 32) - 8])
def test_frames_that_claim_more_than_there_may_be_are_refused(field: str, claim: int) -> None:
    with pytest.raises(BrokenFrameError):
        unpack_header(pack_header(header(**{field: claim})))


@pytest.mark.row(23)
@pytest.mark.parametrize("version", [RECORDS, TYPED])
@pytest.mark.parametrize("claim", [(1 << 20) + 1, (1 << 31) - 1, (1 << 32) - 1])
def test_frames_that_claim_more_records_than_there_may_be_are_refused(
    version: int, claim: int
) -> None:
    """Records whose columns are all null take no byte of the frame, but memory once decoded."""
    most = header(version=version, columns=0, records=1 << 20, span=1 << 20)
    assert unpack_header(pack_header(most)) == most
    with pytest.raises(BrokenFrameError, match="out of range"):
        unpack_header(pack_header(most._replace(records=claim, span=claim)))


@pytest.mark.row(23)
@pytest.mark.parametrize("claim", [1 << 20, 1 << 29, 1 << 30])
def test_a_frame_longer_than_its_file_is_damage(claim: int, tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        store.append(TOPIC, 0, [b"value"])
    log = segment(tmp_path)
    body = claim - HEADER_BYTES - 8
    forged = header(length=claim, body_length=body, raw_length=body, codec=0)
    log.write_bytes(pack_header(forged) + log.read_bytes()[HEADER_BYTES:])
    with pytest.raises(StorageError):
        list(reopen(tmp_path).read(TOPIC, 0))


@pytest.mark.row(25)
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_data_that_grow_beyond_their_claim_are_refused(codec: str) -> None:
    bomb = codec_of(codec).compress(bytes(8 << 20), asbytes=True)
    claimed = header(raw_length=1 << 16, body_length=len(bomb), codec=CODECS.index(codec))
    padded = bomb + bytes(-len(bomb) % 8 + 8)
    with pytest.raises(BrokenFrameError):
        decode_body(claimed, padded)


# In a process of its own: the most memory that a process ever had is only known as a whole.
CLAIM = """
import resource, sys
from storage_core.errors import BrokenFrameError
from storage_core.format.frame import decode_body, pack_header, unpack_header
from storage_core.format.frame import draft_frame, finish_frame
from tests.support.stores import columns_of

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

drafted = draft_frame(columns_of([b"value" * 100] * 50), relative_offset=0, recovery_point=0,
                      compression=sys.argv[1], level=1)
frame = finish_frame(drafted)
rest = b"".join(bytes(buffer) for buffer in frame.buffers)[64:]
decode_body(frame.header, rest)
claimed = unpack_header(pack_header(frame.header._replace(raw_length=1 << 30)))
before = most()
try:
    decode_body(claimed, rest)
except BrokenFrameError:
    print("refused", most() - before)
"""


@pytest.mark.row(25)
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_few_bytes_that_claim_to_be_a_gibibyte_are_refused_and_cost_little(codec: str) -> None:
    command = [sys.executable, "-c", CLAIM, codec]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    outcome, kibibytes = done.stdout.split()
    assert outcome == "refused"
    assert int(kibibytes) < 256 << 10


@pytest.mark.row(23)
@pytest.mark.parametrize("fmt", [CURSUS, CURSUS_BROKER, RUSTLOG])
@pytest.mark.parametrize("length", [0x7FFFFFFF, 0xFFFFFFFF, 1 << 30])
def test_rows_that_claim_to_be_huge_are_not_read(fmt: RowFormat, length: int) -> None:
    data = struct.pack(">I", length) + bytes(60)
    assert len(walk_scalar(data, 0, len(data), fmt).positions) == 0


@pytest.mark.row(23)
def test_a_watermark_that_claims_a_billion_partitions_is_not_believed() -> None:
    head = struct.pack(">4sB3xI16s", b"CRSW", 1, 1 << 30, bytes(16))
    assert slots.unpack(head + struct.pack(">I", crc32c.crc32c(head))) is None
    slot = struct.pack(">4sB3xIIQ16s", b"CRSW", 3, 1 << 30, 0, 2, bytes(16))
    assert slots.unpack((slot + struct.pack(">I", crc32c.crc32c(slot))).ljust(8192, b"\0")) is None
    assert deletion_markers.unpack_marker(bytes(1000)) is None
    assert state.unpack(bytes(1000)) == state.NEVER_USED


@pytest.mark.row(23)
def test_metadata_larger_than_its_limit_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    file = tmp_path / "topics" / TOPIC / "topic.json"
    with file.open("r+b") as handle:
        handle.truncate(1 << 34)  # a hole: nothing is stored
    tracemalloc.reset_peak()
    with pytest.raises(StorageError):
        Store.open(tmp_path).topic(TOPIC)
    _, most = tracemalloc.get_traced_memory()
    assert most < 48 << 20
    file.unlink()
    tracemalloc.reset_peak()
