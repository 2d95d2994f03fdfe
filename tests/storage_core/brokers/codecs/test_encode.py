"""Messages written as the cursus broker writes them, byte for byte against the plain builder."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core.brokers.codecs.encode import encode_control, encode_messages
from storage_core.brokers.codecs.headers import NAMES
from storage_core.brokers.codecs.records import parse_bodies
from storage_core.brokers.codecs.rows import CURSUS_BROKER, Ending, walk_scalar
from storage_core.errors import (
    InvalidRecordError,
    RecordTooLargeError,
    StorageError,
    UnsupportedColumnError,
)
from storage_core.format.columns import HEADERS
from tests.support.brokers.broker_oracle import (
    CUTS,
    LAYOUT,
    PARTITION,
    TOPIC,
    Fields,
    build,
    check_columns,
    framed,
    messages,
    plain_headers,
    plain_parse,
)
from tests.support.sizes import examples


def encode(values: list[bytes], **columns: Any) -> pa.Buffer:
    keys, headers = columns.get("keys"), columns.get("headers")
    return encode_messages(
        pa.array(values, pa.binary()),
        None if keys is None else pa.array(keys, pa.binary()),
        None if headers is None else pa.array(headers, HEADERS),
        topic=TOPIC,
        partition=PARTITION,
        first_offset=columns.get("first_offset", 0),
    ).data


@settings(max_examples=examples(150))
@given(st.lists(messages, max_size=10), st.integers(0, 2**62))
def test_encoded_messages_are_form_e_byte_for_byte(records: list[Fields], first: int) -> None:
    bodies = []
    for i, fields in enumerate(records):
        kept = {name: fields[name] for name in (*NAMES, "payload", "key")}
        kept |= {"topic": TOPIC.encode(), "partition": PARTITION, "offset": first + i}
        bodies.append(build(kept | {"txn_state": b"open" if kept["txn_id"] else b""}, LAYOUT))
    data = encode(
        [fields["payload"] for fields in records],
        keys=[fields["key"] or None for fields in records],
        headers=[plain_headers(fields) for fields in records],
        first_offset=first,
    )
    assert data == framed(bodies)
    rows = walk_scalar(data, 0, len(data), CURSUS_BROKER)
    assert (rows.count, rows.ending) == (len(records), Ending.WHOLE)
    check_columns(data, parse_bodies(data, rows), records)


@pytest.mark.parametrize(
    ("header", "error", "match"),
    [
        (("color", b"red"), UnsupportedColumnError, "cursus-broker .* 'color' .* headers"),
        (("seq", b"007"), InvalidRecordError, "'seq' must be a plain decimal"),
        (("seq", b"-1"), InvalidRecordError, "'seq'"),
        (("schema_version", b"4294967296"), InvalidRecordError, "'schema_version'"),
        (("epoch", b"\xff"), InvalidRecordError, "'epoch'"),
        (("metadata", b"x" * 65536), RecordTooLargeError, "metadata of 65536 bytes"),
    ],
)
def test_headers_that_cannot_be_stored(
    header: tuple[str, bytes], error: type[StorageError], match: str
) -> None:
    with pytest.raises(error, match=match):
        encode([b"v"], headers=[[header]])


def test_headers_that_say_nothing_are_no_headers() -> None:
    plain = encode([b"v", b"w"])
    empty = [[("producer", b""), ("seq", b"0"), ("metadata", None)], []]
    assert encode([b"v", b"w"], headers=empty) == plain
    with pytest.raises(InvalidRecordError, match="'producer' twice"):
        encode([b"v"], headers=[[("producer", b"a"), ("producer", b"b")]])


def test_record_at_exactly_the_limit_is_the_last_that_fits() -> None:
    overhead = len(encode([b""])) - 4
    largest = b"x" * (CURSUS_BROKER.max_payload - overhead)
    data = encode([largest])
    rows = walk_scalar(data, 0, len(data), CURSUS_BROKER)
    assert rows.lengths.tolist() == [CURSUS_BROKER.max_payload]
    assert parse_bodies(data, rows).value_column(data)[0].as_py() == largest
    with pytest.raises(RecordTooLargeError, match="broker stores it"):
        encode([largest + b"x"])


def test_control_record_is_what_the_broker_writes() -> None:
    data = encode_control(topic=TOPIC, partition=PARTITION, offset=9, txn_id="t1", epoch=2)
    plain = plain_parse(data[4:], LAYOUT, CUTS)
    assert plain is not None
    assert plain.used == len(data) - 4
    expected = {
        "offset": 9, "producer": b"txn-marker:t1:commit", "seq": 1, "epoch": 2,
        "payload": b"__cursus_txn_control_marker__", "txn_id": b"t1", "txn_state": b"committed",
        "txn_marker": b"commit", "control_type": b"transaction", "control_version": 2,
        "control_epoch": 2, "control_key": bytes(4), "control_value": bytes([0, 0, 0, 0, 0, 2]),
    }  # fmt: skip
    assert {name: plain.fields[name] for name in expected} == expected
    rows = walk_scalar(data, 0, len(data), CURSUS_BROKER)
    parsed = parse_bodies(pa.py_buffer(data), rows)
    assert parsed.control.tolist() == [True]
    assert parsed.transactional
