"""The cursus broker's message bodies: every form, against a plain parser written from the table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_core.brokers.codecs.ordinal import parse_ordinal
from storage_core.brokers.codecs.records import parse_bodies
from tests.support.brokers.broker_oracle import (
    CUTS,
    LAYOUT,
    ORDINAL,
    PARTITION,
    TOPIC,
    Fields,
    build,
    check_columns,
    messages,
    plain_parse,
    rows_of,
)
from tests.support.sizes import examples


def check_against_plain(bodies: Sequence[bytes]) -> None:
    data, rows = rows_of(bodies)
    parsed = parse_bodies(data, rows)
    expected: list[Fields] = []
    for body in bodies:
        plain = plain_parse(body, LAYOUT, CUTS)
        if plain is None or plain.fields["offset"] >= 2**63:
            break
        expected.append(plain.fields)
    assert parsed.count == len(expected)
    assert (parsed.damage is None) == (len(expected) == len(bodies))
    assert parsed.offsets.tolist() == [fields["offset"] for fields in expected]
    assert parsed.control.tolist() == [bool(fields.get("txn_marker")) for fields in expected]
    for name in ("txn_id", "txn_state", "txn_marker", "control_key", "control_value"):
        column = parsed.text(name).column(data).to_pylist()
        assert column == [fields.get(name, b"") for fields in expected]
    assert parsed.number("epoch").tolist() == [fields["epoch"] for fields in expected]
    assert parsed.number("control_epoch").tolist() == [
        fields.get("control_epoch", 0) for fields in expected
    ]
    check_columns(data, parsed, expected)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(messages, st.sampled_from(CUTS), st.binary(max_size=3)), max_size=12))
def test_every_form_comes_back(records: list[tuple[Fields, int, bytes]]) -> None:
    # Bytes after the last field are ignored, so only a whole form E may have some.
    check_against_plain(
        [build(f, LAYOUT[:cut]) + (extra if cut == 20 else b"") for f, cut, extra in records]
    )


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(messages, st.sampled_from(CUTS)), min_size=1, max_size=8), st.data())
def test_mutated_bodies_are_parsed_as_the_plain_parser_does(
    records: list[tuple[Fields, int]], draw: st.DataObject
) -> None:
    bodies = [bytearray(build(fields, LAYOUT[:cut])) for fields, cut in records]
    for _ in range(draw.draw(st.integers(1, 3))):
        body = bodies[draw.draw(st.integers(0, len(bodies) - 1))]
        at = draw.draw(st.integers(0, len(body)))
        if draw.draw(st.booleans()):
            del body[at:]
        elif at < len(body):
            body[at] = draw.draw(st.sampled_from([0, 1, 3, 255]))
    check_against_plain([bytes(body) for body in bodies])


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_arbitrary_bodies_never_break_the_parser(bodies: list[bytes]) -> None:
    check_against_plain(bodies)


def test_worked_example_of_the_module() -> None:
    body = bytes.fromhex(
        "000174 00000000 0000000000000003 0000 0000000000000000 0000000000000000 00000002 6869"
    )
    data, rows = rows_of([body])
    parsed = parse_bodies(data, rows)
    assert parsed.offsets.tolist() == [3]
    check_columns(data, parsed, [{"payload": b"hi"}])


def test_damage_says_where_and_keeps_what_is_before() -> None:
    good = build({"offset": 5, "payload": b"ok"}, LAYOUT)
    data, rows = rows_of([good, good[:-1], good])
    parsed = parse_bodies(data, rows)
    assert parsed.count == 1
    assert f"body of {len(good) - 1} bytes" in str(parsed.damage)
    data, rows = rows_of([good, build({"offset": 2**63}, LAYOUT)])
    assert "above 2**63" in str(parse_bodies(data, rows).damage)


def ordinal_oracle(body: bytes) -> Fields:
    route = (TOPIC.encode(), PARTITION)
    b = plain_parse(body, LAYOUT[:7], ())
    if b and b.used == len(body) and (b.fields["topic"], b.fields["partition"]) == route:
        return b.fields
    a = plain_parse(body, [*LAYOUT[:3], ("payload", "S")], ())
    if a and a.used == len(body) and (a.fields["topic"], a.fields["partition"]) == route:
        inner = plain_parse(a.fields["payload"], ORDINAL, ())
        if inner and inner.used == len(a.fields["payload"]):
            return inner.fields
    m = plain_parse(body, ORDINAL, ())
    return m.fields if m and m.used == len(body) else {"payload": body}


def ordinal_body(
    form: str, fields: Fields, *, topic: bytes = TOPIC.encode(), partition: int = PARTITION
) -> bytes:
    routed = fields | {"topic": topic, "partition": partition}
    if form == "R":
        return bytes(fields["payload"])
    if form == "B":
        return build(routed, LAYOUT[:7])
    inner = build(fields, ORDINAL)
    outer = [*LAYOUT[:3], ("payload", "S")]
    return build(routed | {"payload": inner}, outer) if form == "A" else inner


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.sampled_from("RMAB"), messages, st.data()), max_size=10))
def test_forms_of_the_ordinal_era_are_distinguished(
    records: list[tuple[str, Fields, st.DataObject]],
) -> None:
    bodies = []
    for form, fields, draw in records:
        topic = draw.draw(st.sampled_from([TOPIC.encode(), b"others", b""]))
        partition = draw.draw(st.sampled_from([PARTITION, PARTITION, 0]))
        body = ordinal_body(form, fields, topic=topic, partition=partition)
        bodies.append(body[: draw.draw(st.sampled_from([None, -1, 9]))])
    data, rows = rows_of(bodies)
    parsed = parse_ordinal(data, rows, TOPIC, PARTITION, first_offset=70)
    assert parsed.count == len(bodies)
    assert parsed.damage is None
    assert parsed.offsets.tolist() == [70 + i for i in range(len(bodies))]
    check_columns(data, parsed, [ordinal_oracle(body) for body in bodies])


def test_body_that_is_both_b_and_a_counts_as_b() -> None:
    # Read as A, the producer's length and the first bytes of seq are the length of an M body.
    body = ordinal_body("B", {"seq": 24 << 48, "payload": b"either"})
    inner = plain_parse(body[24:], ORDINAL, ())
    assert inner is not None
    assert inner.used == len(body) - 24 == int.from_bytes(body[20:24])
    data, rows = rows_of([body])
    parsed = parse_ordinal(data, rows, TOPIC, PARTITION)
    assert parsed.value_column(data).to_pylist() == [b"either"]


@pytest.mark.parametrize("form", ["R", "M", "A", "B"])
def test_each_ordinal_form_gives_the_payload_back(form: str) -> None:
    data, rows = rows_of([ordinal_body(form, {"payload": b"v", "seq": 4, "key": b"k"})])
    parsed = parse_ordinal(data, rows, TOPIC, PARTITION)
    assert parsed.value_column(data).to_pylist() == [b"v"]
    assert parsed.key_column(data).to_pylist() == [b"k" if form in "MA" else None]
    assert parsed.number("seq").tolist() == [0 if form == "R" else 4]
