"""The decoders alone, without files around them: each takes any bytes, or says what is wrong.

Where a decoder has a plain twin the two must agree; where bytes carry a checksum, bytes that were
changed must be refused or give what was written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from random import Random

import numpy as np
import pyarrow as pa

from storage_core.brokers import summaries, transactions
from storage_core.brokers.codecs.index import parse_broker_index, parse_rustlog_index
from storage_core.brokers.codecs.records import parse_bodies
from storage_core.brokers.codecs.row_walk import walk_indexed
from storage_core.brokers.codecs.rows import (
    CURSUS,
    CURSUS_BROKER,
    RUSTLOG,
    RowFormat,
    payload_column,
    walk_scalar,
)
from storage_core.errors import BrokenFrameError
from storage_core.format import lock_state as state
from storage_core.format.frame import HEADER_BYTES, check_frame, decode_body, unpack_header
from storage_core.format.sparse_index import parse_open, parse_sealed
from storage_core.format.typed_body import PREAMBLE_BYTES, decode_columns
from storage_core.io import json_files as metafile
from storage_core.kafka.codecs import checkpoints, indexes
from storage_core.metadata import slots
from storage_core.segments import deletion_markers
from tests.fuzz import typed_samples
from tests.fuzz.mutations import mutated, with_another_field, with_right_checksums
from tests.fuzz.trees import files_of
from tests.support.brokers.broker_oracle import CUTS, LAYOUT, plain_parse
from tests.support.brokers.kafka_directories import DATA
from tests.support.brokers.kafka_oracle import compare_with_plain, with_right_checksum

Decoder = Callable[[bytes, Random], None]


class WrongBytesError(Exception):
    """A decoder made something of bytes that say something else."""


@cache
def samples(tree: str, suffix: str) -> tuple[bytes, ...]:
    """Files of the corpus of one kind, or bodies of typed frames."""
    if tree == "typed":
        return tuple(typed_samples.bodies())
    if tree == "kafka":
        small = (file for file in sorted(DATA.rglob(f"*{suffix}")) if file.stat().st_size < 3000)
        return tuple(filter(None, (file.read_bytes() for file in small)))
    files = files_of(tree).items()
    return tuple(data for path, data in files if path.endswith(suffix) and data)


@cache
def frames_of(data: bytes) -> frozenset[bytes]:
    """The sound frames of a segment, one by one."""
    found, at = [], 0
    while at < len(data):
        length = unpack_header(data[at : at + HEADER_BYTES]).length
        found.append(data[at : at + length])
        at += length
    return frozenset(found)


def frame(data: bytes, rng: Random) -> None:
    """Bytes that pass as a frame are one that was written, unless checksums were forged."""
    forged = rng.random() < 0.5
    frames = sorted(frames_of(data))
    before = rng.choice(frames)
    changed = with_right_checksums(before, rng) if forged else mutated(before, rng)
    try:
        header = unpack_header(changed)
        rest = pa.py_buffer(changed[HEADER_BYTES : header.length])
        check_frame(header, rest)
        decoded = decode_body(header, rest)
    except BrokenFrameError:
        return
    if not forged and changed[: header.length] not in frames:
        raise WrongBytesError("a changed frame passes")
    if decoded is not None:
        decoded.to_pylist() if forged and _printable(decoded) else decoded.validate(full=True)


def _printable(batch: pa.RecordBatch) -> bool:
    """Python has no word for moments before the year 1 or after 9999."""
    return "timestamp" not in batch.schema.names


def typed_columns(data: bytes, rng: Random) -> None:
    """Columns of a typed body are sound, have a row for each record, and take bounded memory."""
    changed = mutated(data, rng)
    if rng.random() < 0.8:  # otherwise the lengths of most inputs contradict each other at once
        first = rng.randrange(PREAMBLE_BYTES, len(data))
        end = min(len(data), first + rng.choice((1, 4, 12, 500)))
        middle = mutated(data[first:end], rng)[: end - first].ljust(end - first, b"\0")
        changed = data[:first] + middle + data[end:]
    elif rng.random() < 0.9:
        changed = typed_samples.with_right_checksum(changed)
    wanted = rng.sample(list(typed_samples.SCHEMA.positions), 3)
    most = rng.choice((1 << 10, 1 << 16, 1 << 16, 1 << 20))
    before = pa.total_allocated_bytes()
    found = decode_columns(
        changed,
        records=rng.choice((*typed_samples.COUNTS, *typed_samples.COUNTS, 0, 1 << 31)),
        raw_length=most,
        schema=typed_samples.SCHEMA,
        wanted=wanted,
    )
    if pa.total_allocated_bytes() - before > 4 * most + (1 << 12):
        raise WrongBytesError("a body of a typed frame takes more memory than its header claims")
    for number, array in found.items():
        array.validate(full=True)
        if number not in wanted or array.type != typed_samples.SCHEMA.by_id[number].type:
            raise WrongBytesError(f"a column of type {array.type} that nobody asked for")


def rows(fmt: RowFormat) -> Decoder:
    """Both walkers of a row format find the same records, inside the data."""

    def decode(data: bytes, rng: Random) -> None:
        changed = mutated(data, rng)
        scalar = walk_scalar(changed, 0, len(changed), fmt)
        entries = np.array(sorted(rng.sample(range(len(changed) + 9), 3)), dtype=np.int64)
        indexed = walk_indexed(changed, 0, len(changed), fmt, entries)
        buffer = pa.py_buffer(changed)
        first, second = (payload_column(buffer, found, fmt) for found in (scalar, indexed))
        first.validate(full=True)
        if not first.equals(second):
            raise WrongBytesError(f"{len(first)} records one by one, {len(second)} by index")

    return decode


def bodies(data: bytes, rng: Random) -> None:
    """The fields of the broker's messages are those that a plain parser finds."""
    body = mutated(data[4 : 4 + struct.unpack_from(">I", data)[0]], rng)
    if not body:
        return
    framed = struct.pack(">I", len(body)) + body
    found = walk_scalar(framed, 0, len(framed), CURSUS_BROKER)
    parsed = parse_bodies(framed, found)
    plain = plain_parse(body, LAYOUT, CUTS)
    values = parsed.value_column(pa.py_buffer(framed))
    values.validate(full=True)
    # An offset that no log can reach is damage to us.
    sound = plain is not None and plain.fields["offset"] < 1 << 63
    expected = [plain.fields["payload"]] if sound and plain is not None else []
    if values.to_pylist() != expected:
        raise WrongBytesError(f"payload {values.to_pylist()}, not {expected}")


def sealed_index(data: bytes, rng: Random) -> None:
    changed = mutated(data, rng)
    for kind in ("offset", "time"):
        size = rng.choice((0, 504, 512, 1 << 40))
        found = parse_sealed("offset" if kind == "offset" else "time", changed, size)
        if found is not None and changed != data:
            raise WrongBytesError("a changed index passes")
    parse_open(changed, 504)


def broker_indexes(data: bytes, rng: Random) -> None:
    changed = mutated(data, rng)
    for parse in (parse_broker_index, parse_rustlog_index):
        entries = parse(changed, 300)
        if len(entries.positions) and int(entries.positions[-1]) > 300:
            raise WrongBytesError("an entry points after the log")


def json_file(data: bytes, rng: Random) -> None:
    forged = rng.random() < 0.5
    changed = with_another_field(data, rng) if forged else mutated(data, rng)
    fields = metafile.load(changed, "a file")
    if not forged and changed != data:
        raise WrongBytesError("a changed metadata file passes")
    for text in (value for value in fields.values() if isinstance(value, str)):
        text.encode()


def _is_wrong(data: bytes, changed: bytes) -> bool:
    """Whether high watermarks pass that nobody wrote. Zeros after a slot do not count."""
    found, sound = slots.unpack(changed), slots.unpack(data)
    return found is not None and (sound is None or found.watermark != sound.watermark)


def small_files(data: bytes, rng: Random) -> None:
    """High watermark, deletion marker, state word, counts of rows and the broker's journal."""
    changed = mutated(data, rng)
    believed = {
        "watermark": _is_wrong(data, changed),
        "tomb": deletion_markers.unpack_marker(changed) is not None,
        "state word": state.unpack(changed) != state.NEVER_USED,
        "table of rows": bool(summaries.unpack(changed)),
    }
    for kind, passes in believed.items():
        if passes and changed != data:
            raise WrongBytesError(f"a changed {kind} passes")
    transactions.parse_journal(changed)  # last: it refuses whatever is no journal


def kafka_batches(data: bytes, rng: Random) -> None:
    """A plain reader finds the same records, whether the checksum of the first batch is right."""
    changed = mutated(data, rng)
    if rng.random() < 0.6 and len(changed) > HEADER_BYTES:
        changed = with_right_checksum(changed)
    compare_with_plain(changed)


def kafka_files(data: bytes, rng: Random) -> None:
    """Indexes stay inside the log, and checkpoint files are whole or refused."""
    changed = mutated(data, rng)
    entries = indexes.parse_offset_index(changed, 7, 300)
    if len(entries.positions) and not 0 < int(entries.positions[-1]) < 300:
        raise WrongBytesError("an entry points outside the log")
    indexes.parse_time_index(changed, 7)
    indexes.parse_aborted(changed)
    if indexes.parse_snapshot(changed) is not None and changed != data:
        raise WrongBytesError("a changed snapshot passes")
    parsers = (checkpoints.parse_offsets, checkpoints.parse_epochs, checkpoints.parse_topic_id)
    rng.choice(parsers)(changed, "a file")


DECODERS: tuple[tuple[str, str, Decoder], ...] = (
    ("native", ".log", frame),
    ("native", ".frames", frame),
    ("native", ".log", frame),
    ("native", "idx", sealed_index),
    ("native", ".json", json_file),
    ("native", "broker.id", json_file),
    ("native", "watermark", small_files),
    ("native", "lock", small_files),
    ("native", ".tomb", small_files),
    ("typed", "", typed_columns),
    ("typed", "", typed_columns),
    ("cursus", ".log", rows(CURSUS)),
    ("cursus", ".rows", small_files),
    ("rustlog", ".log", rows(RUSTLOG)),
    ("rustlog", ".index", broker_indexes),
    ("cursus-broker", ".log", rows(CURSUS_BROKER)),
    ("cursus-broker", ".log", bodies),
    ("cursus-broker", ".index", broker_indexes),
    ("cursus-broker", ".journal", small_files),
    ("kafka", ".log", kafka_batches),
    ("kafka", ".log", kafka_batches),
    ("kafka", ".snapshot", kafka_files),
    ("kafka", ".timeindex", kafka_files),
    ("kafka", "checkpoint", kafka_files),
    ("kafka", ".metadata", kafka_files),
)


def decode(rng: Random) -> None:
    """Let one decoder see changed bytes.

    Raises:
        WrongBytesError: it made something wrong of them.
        Exception: anything but a typed error.
    """
    tree, suffix, decoder = rng.choice(DECODERS)
    decoder(rng.choice(samples(tree, suffix)), rng)
