"""What a ``where`` may say: literals, names, and errors of one line that show the place."""

from __future__ import annotations

import math
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage_core.errors import InvalidPredicateError, StorageError
from storage_core.predicate.binder import bind
from storage_core.predicate.bound import Bound
from storage_core.predicate.expressions import (
    Comparison,
    Every,
    IsNull,
    Name,
    Not,
    Some,
    Truth,
    Value,
)
from storage_core.predicate.parser import MAX_TEXT, parse
from storage_core.predicate.tokens import MAX_DEPTH

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ID2", pa.int32()),
        ("amount", pa.float64()),
        ("user", pa.string()),
        ("key", pa.binary()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("took", pa.duration("us")),
        ("price", pa.decimal128(9, 2)),
        ("wide", pa.decimal128(38, 38)),
        ("tags", pa.list_(pa.string())),
        ("ctx", pa.struct([("a", pa.int32())])),
        ("nothing", pa.null()),
        ("Ünï code", pa.int64()),
    ]
)


def bound(text: str) -> Bound:
    return bind(parse(text), SCHEMA)


def literal(text: str) -> Value:
    condition = parse(f"x = {text}").condition
    assert isinstance(condition, Comparison)
    assert isinstance(condition.right, Value)
    return condition.right


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", "integer", 5), ("-5", "integer", -5), ("+ 5", "integer", 5), ("5L", "integer", 5),
        ("127y", "integer", 127), ("5S", "integer", 5), ("007", "integer", 7),
        ("9" * 38, "integer", int("9" * 38)), ("0" * 50 + "1", "integer", 1),
        ("1.50", "decimal", 1.5), (".5", "decimal", 0.5), ("5.", "decimal", 5),
        ("5BD", "decimal", 5),
        ("-1.5e0", "double", -1.5), ("1D", "double", 1.0), ("1e-3", "double", 0.001),
        ("0.1F", "double", 0.10000000149011612),
        ("'a'", "string", "a"), ('"a"', "string", "a"), ("'it''s'", "string", "it's"),
        (r"'it\'s'", "string", "it's"), (r"'\\\\'", "string", "\\\\"),
        (r"'a\nb'", "string", "a\nb"),
        ("'say \"\"'", "string", 'say ""'), ("''", "string", ""), ("X'00fF'", "binary", b"\0\xff"),
        ("DATE'1970-01-03'", "date", 2), ("date '0001-01-01'", "date", -719162),
        ("TIMESTAMP'1970-01-01 00:00:01.5'", "timestamp", (1_500_000, False)),
        ("TIMESTAMP'1970-01-01T01:00+01:00'", "timestamp", (0, True)),
        ("TIMESTAMP_LTZ'1970-01-01 00:00:00Z'", "timestamp", (0, True)),
        ("TIMESTAMP_NTZ'1970-01-02'", "timestamp_ntz", (86_400_000_000, False)),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", "interval", 93_784_500_000),
        ("interval '-90' minute", "interval", -5_400_000_000),
        ("true", "boolean", True), ("FALSE", "boolean", False), ("NULL", "null", None),
    ],
)  # fmt: skip
def test_literals_are_read_as_spark_reads_them(text: str, kind: str, value: object) -> None:
    found = literal(text)
    assert (found.kind, found.value) == (kind, value)


@pytest.mark.parametrize(
    "text",
    [
        "5x", "1.5L", "128Y", "9223372036854775808L", "9" * 39, "0." + "1" * 39, "1e400", "1e39F",
        "1e9999999BD", "'a' 'b'", r"'\q'", "'\ud800'", "X'0'", "X'0 0'", "X'zz'",
        "DATE'2026-02-30'",
        "DATE'2026-1-1'", "TIMESTAMP'2026-01-01 24:00'", "TIMESTAMP'2026-01-01 00:00+19:00'",
        "TIMESTAMP_NTZ'2026-01-01 00:00Z'", "INTERVAL '1' YEAR", "INTERVAL '25' DAY TO SECOND",
        "INTERVAL '1 24' DAY TO HOUR", "INTERVAL '1'", "INTERVAL '99999999999999999' DAY",
        "'", "`a", "``", "- x", "--5", "now()", "a.", "a..b", "0x5", "1 2", "/* */ 5", "5; drop",
        "?", ":x", "@",
    ],
)  # fmt: skip
def test_what_spark_would_guess_or_refuse_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(
        InvalidPredicateError, match=r"^where: .+, at character \d+: .*».*«"
    ) as found:
        parse(f"x = {text}")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 -- b", "a = 1 /* b */", "/*+ b */ a = 1", "{# b #} a = 1", "a = 1 {# b", "a = 1;",
        "a = 1; b = 2", "a in (1,)", "a in (,1)", "a in (1 2)", "a in ()", "a in 1",
        "a in (select 1)", "a in [1]", "a in ((1))", "a in (1, (2))", "a between 1 2",
        "a between symmetric 1 and 2", "a isnull", "a notnull", "a is not distinct from b",
        "a is true", "a is null is null", "a = b is null", "a = b = c", "a < b = c", "a = not b",
        "a = 1 in (2)", "a = b between 1 and 2", "a = any(1)", "a = all (1, 2)",
        "exists (select 1)", "(select 1)", "select a", "(a, b) = (1, 2)", "a = 1 as b", "a b",
        "a = 1 b", "case when a then b end", "if(a, b, c)", "current_date() = a", "a = n'b'",
        "a = r'b'", "a = u&'b'", "a = b'0'", "a = _utf8'b'", "a = 'b' 'c'", "a::int = 1",
        "a[0] = 1", "a:b = 1", "a.* = 1", "* = 1", "a || b = 'c'", "a + 1 = 2", "a - 1 = 2",
        "a -1 = 2", "a * 2 = 2", "a % 2 = 0", "-a = 1", "+a = 1", "- -1 = a", "+-1 = a",
        "-+1 = a", "-(1) = a", "-'1' = a", "~a = 1", "!a", "a !in (1)", "not", "not not", "a and",
        "a or or b", "a and and b", "a & b", "a << 1 = 2", "a < < 1", "a < = 1", "a ! = 1",
        "a like 'b'", "a not like 'b'", "a rlike 'b'", "a ilike any ('b')", "a collate b = 'c'",
        "interval '1' day + '2' hour = a", "a = interval 1 day", "a = interval '1 day'",
        "a = interval '1' day '2' hour", "a = interval '1' day to second to hour", "a = date 5",
        "a = time'00:00'", "a = timestamp_s'2026-01-01'", "a = date'2026-01-01'.b", "a = 5.b",
        "a.5 = 1", "a.in = 1", "a..b = 1", ".a = 1", "a. = 1", "a = @b", "a = :b", "a = ?",
        "a = $1", "a = ${b}", "{{ a }} = 1", "a = 1e", "a = 1_000", "a = 0b1", "a = 0x1",
        "a€ = 1", "a\x00 = 1", "a = x'0g'", "a = x'", "a = 'b", 'a = "b', "a = `b", "a = ``",
        "(a", "a)", ")(", "()", "a = ()", "array(1) = a", "map(a, b) is null",
        "a within group (b)", "a over (b)", "lambda x: x", "x -> x = 1",
        "a at time zone 'UTC' = b", "a escape 'b'", "prior a = 1", "a overlaps b",
    ],
)  # fmt: skip
def test_the_rest_of_sql_is_refused_at_its_place(text: str) -> None:
    """sqlglot understands most of these, and some it would take for another predicate."""
    with pytest.raises(
        InvalidPredicateError, match=r"^where: .+, at character \d+: .*».*«"
    ) as found:
        parse(text)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "name",
    [
        "case", "if", "next", "prior", "any", "all", "exists", "current_date", "map", "array",
        "select", "interval", "date", "timestamp", "to", "day", "like", "values", "row",
        "distinct", "symmetric", "x", "n", "escape", "as", "end", "key", "user", "time", "left",
    ],
)  # fmt: skip
def test_words_of_sql_are_names_of_columns(name: str) -> None:
    for text in (f"{name} = 5", f"5 = {name}", f"a.{name} = 5", f"not {name}.a <=> 5"):
        found = parse(text).condition
        comparison = found.condition if isinstance(found, Not) else found
        assert isinstance(comparison, Comparison), text
        (column,) = (each for each in (comparison.left, comparison.right) if isinstance(each, Name))
        assert column.parts in ((name,), ("a", name), (name, "a")), text


def test_not_binds_more_tightly_than_and_which_binds_more_tightly_than_or() -> None:
    found = parse("a or not b and c or NOT NOT d").condition
    assert isinstance(found, Some)
    first, second, third = found.conditions
    assert isinstance(first, Truth)
    assert isinstance(third, Truth)
    assert isinstance(second, Every)
    assert isinstance(second.conditions[0], Not)


def test_names_may_have_dots_spaces_quotes_and_words_of_sql() -> None:
    found = parse("`a.b`.` c``d`.date is null").condition
    assert isinstance(found, IsNull)
    assert found.name.parts == ("a.b", " c`d", "date")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("ID > 1 and id2 = 2", ("id", "ID2")),
        ("id = 1 or Id = 2", ("id",)),
        ("CTX.A = 1", ("ctx",)),
        ("`ünï CODE` = 1", ("Ünï code",)),
        ("true", ()),
    ],
)
def test_names_match_in_any_case(text: str, columns: tuple[str, ...]) -> None:
    assert bound(text).columns == columns


def test_the_exact_case_takes_precedence_and_doubt_is_refused() -> None:
    schema = pa.schema([("a", pa.int64()), ("A", pa.string()), ("b", pa.int64())])
    assert bind(parse("A = 'x' and B = 1"), schema).columns == ("A", "b")
    schema = pa.schema([("ab", pa.int64()), ("AB", pa.string())])
    with pytest.raises(InvalidPredicateError, match="aB may be ab and AB"):
        bind(parse("aB = 1"), schema)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a condition, found nothing, at character 1"),
        ("id >", "found the end"),
        ("id > 1 user", "user is not understood here; =, !=,"),
        ("id + 1 > 2", r"\+ is not understood here"),
        ("user like 'a%'", "like is not understood here"),
        (
            "length(user) > 1",
            "functions are not understood; filter by that after the read, at character 1: »length«",
        ),
        ("cast(id as string) = 'a'", "functions are not understood"),
        ("(id = 1", r"this parenthesis is not closed, at character 1: »\(«id = 1"),
        ("id = 1)", r"\) is not understood here"),
        ("(id = 1) = true", r"found a condition, at character 1: »\(id = 1\)« = true"),
        ("(id = 1) is null", r"found a condition, at character 1: »\(id = 1\)« is null"),
        ("5 is null", "expected a column before IS"),
        ("id in (1", r"this parenthesis is not closed, at character 7: id in »\(«1"),
        ("id in (1 2)", "2 is not understood here"),
        ("id in ()", "expected literals in the list of IN"),
        ("id in (user)", "expected a literal in the list of IN"),
        ("id in 1", r"expected \( after IN"),
        ("id between 1 or 2", "or is not understood here"),
        ("id between 1 2", "expected AND after the first value of BETWEEN, at character 14"),
        ("id is true", "expected NULL after IS"),
        ("id not = 1", "(not|=) is not understood here"),
        ("id.`\n` = 1", r"id is of type bigint and has no field `\\n`"),
        ("5", "expected a condition, found a literal"),
        ("1 = 1", "expected a column on one side of ="),
        ("order = 1", "there is no column order; the columns are id, ID2, amount"),
        ("amuont > 1", r"there is no column amuont; did you mean amount\?, at character 1"),
        ("ctx.aa > 1", r"there is no column ctx\.aa; the fields of ctx are a"),
        ("in = 1", "a column of this name is `in`"),
        ("ctx.b = 1", r"there is no column ctx\.b; the fields of ctx are a"),
        ("id.a = 1", "id is of type bigint and has no field a"),
        ("id", "expected a condition, found column id of type bigint"),
        ("id = 'a'", "expected a number to compare with column id of type bigint, at character 6"),
        ("ok = 1", "expected true or false to compare with column ok"),
        ("user = 1", "expected a text such as 'a' to compare with column user"),
        ("key = 1", "expected X'00ff', or a text"),
        ("amount = '1.5'", "expected a number, or 'NaN'"),
        ("day = '2026-13-01'", "expected a date such as '2026-11-01' to compare with column day"),
        (
            "at = 'yesterday'",
            "expected a time such as '2026-11-01 12:30:00' to compare with column at",
        ),
        ("at = 5", "expected a time such as '2026-11-01 12:30:00' to compare with column at"),
        ("local = '2026-11-01 00:00Z'", "without a zone"),
        ("took = 5", "expected INTERVAL"),
        ("tags = 'a'", "column tags of type array<string> can only be tested with IS NULL"),
        ("tags = tags", "cannot be compared"),
        ("id = user", "columns id of type bigint and user of type string cannot be compared"),
        ("day = at", "cannot be compared"),
        ("price = amount", "cannot be compared"),
        ("wide = id", "cannot be compared"),
    ],
)
def test_errors_name_what_was_found_and_what_is_expected(text: str, problem: str) -> None:
    with pytest.raises(InvalidPredicateError, match=problem) as found:
        bound(text)
    assert "\n" not in str(found.value)
    assert found.value.code == "PREDICATE_INVALID"


def test_a_long_text_is_shown_in_part() -> None:
    text = " or\n".join(f"id = {number}" for number in range(1000))
    with pytest.raises(InvalidPredicateError) as found:
        parse(f"{text} or {'x' * 100} + 5 or {text}")
    assert len(str(found.value)) < 250
    assert "…" in str(found.value)


@pytest.mark.slow
def test_sizes_are_limited() -> None:
    with pytest.raises(InvalidPredicateError, match="levels of parentheses"):
        parse("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1))
    assert parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH)
    with pytest.raises(InvalidPredicateError, match="expected at most 200,000 characters"):
        parse("a" * (MAX_TEXT + 1))
    many = bound(" or ".join(f"id = {number}" for number in range(10_000)))
    assert many.mask({"id": pa.array([5, 20_000])}, 2).to_pylist() == [True, False]
    assert isinstance(parse("not " * (MAX_DEPTH - 1) + "a").condition, Not)
    for text in ("not " * 10_001 + "a", "(not " * MAX_DEPTH + "a" + ")" * MAX_DEPTH):
        with pytest.raises(InvalidPredicateError, match="levels of parentheses"):
            parse(text)


def test_a_call_near_the_end_of_the_stack_is_a_typed_error() -> None:
    def at_depth(left: int) -> object:
        return at_depth(left - 1) if left else parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH)

    with pytest.raises(InvalidPredicateError, match="too many levels of parentheses"):
        at_depth(sys.getrecursionlimit() - 300)


@pytest.mark.parametrize("text", [None, 5, b"a = 1", ["a"]])
def test_anything_but_a_text_is_refused(text: Any) -> None:
    with pytest.raises(InvalidPredicateError, match="expected a text, found"):
        parse(text)


PIECES = [*"ai1.'\"`()<=>-+,X \\\n%é", " and ", " in (", "date", " is ", "id", "user", "= "]


@given(st.lists(st.sampled_from(PIECES)).map("".join) | st.text())
@example("a'\n'")
@example("`a\nb` = 1")
def test_any_text_is_a_predicate_or_a_typed_error(text: str) -> None:
    try:
        found = str(bound(text).columns)
    except StorageError as error:
        found = str(error)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nothing = 5", False), ("nothing is null", True), ("nothing <=> 5", False),
        ("nothing <=> null", True), ("not nothing in (1)", False), ("not (nothing <=> 5)", True),
        ("nothing", False), ("nothing < id", False), ("nothing <=> id", True),
    ],
)  # fmt: skip
def test_a_column_of_nulls_only_is_null(text: str, found: bool) -> None:
    assert bound(text).mask({"nothing": pa.nulls(1)}, 1).to_pylist() == [found]


def test_lists_know_both_zeros_and_nan() -> None:
    numbers = pa.array([0.0, -0.0, math.nan, None, 1.0])
    found = bound("amount in (0, 'NaN')").mask({"amount": numbers}, 5)
    assert found.to_pylist() == [True, True, True, False, False]


def test_a_nan_in_a_list_is_every_nan() -> None:
    # 0.0 / 0.0 on x86 sets the sign: Arrow's is_in takes it for another value.
    bits = pa.array([0x7FF8000000000000, -0x8000000000000, 0x7FF8000000000001, 0], pa.int64())
    numbers = {"amount": bits.view(pa.float64())}
    assert bound("amount in (1, 'NaN')").mask(numbers, 4).to_pylist() == [True, True, True, False]
    assert bound("amount not in (1, 'NaN')").mask(numbers, 4).to_pylist() == [*3 * [False], True]
