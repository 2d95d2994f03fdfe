"""Parsers of single options: a text becomes a value, or an error that names the option."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from storage_core import LayoutNotFoundError
from storage_core.arguments import byte_size as bytes_of
from storage_core.arguments import local_path, milliseconds, store_url

from ..errors import CursusError, cursus_error, shown
from .offsets import load_json, parse_partition
from .read_options import Subscription

_MAX_LONG = (1 << 63) - 1
_MAX_INT = (1 << 31) - 1
_MOST_BYTES = 64 << 20
# In backticks, or without any; then a comma, or the end.
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`,](?:[^`,]*[^\s`,])?))\s*(,|\Z)")
_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'
# What Java's classes mean in the name of a topic.
_JAVA_CLASSES = {
    **dict.fromkeys(("Alpha", "L", "IsAlphabetic", "IsLetter"), "a-zA-Z"),
    **dict.fromkeys(("Lower", "Ll", "IsLowercase", "javaLowerCase"), "a-z"),
    **dict.fromkeys(("Upper", "Lu", "IsUppercase", "javaUpperCase"), "A-Z"),
    **dict.fromkeys(("Digit", "N", "Nd", "IsDigit"), "0-9"),
    **dict.fromkeys(("Punct", "P", "IsPunctuation"), "._-"),
    "Alnum": "a-zA-Z0-9",
}

Parser = Callable[[str, str], Any]
"""Takes the option's name and its text."""


def invalid(name: str, expectation: str, text: str) -> CursusError:
    """The error for an invalid value of an option."""
    return cursus_error(
        "OPTION_INVALID", f"Option '{name}' must be {expectation}, got {shown(text)}."
    )


def positive_int(name: str, text: str) -> int:
    """A whole number from 1 to the largest Java int."""
    return _number(name, text, 1, _MAX_INT, "a positive integer")


def positive_long(name: str, text: str) -> int:
    """A whole number from 1 to the largest Java long."""
    return _number(name, text, 1, _MAX_LONG, "a positive integer")


def version(name: str, text: str) -> int:
    """A whole number from 0, as the batch ids of ``foreachBatch``."""
    return _number(name, text, 0, _MAX_LONG, "a non-negative integer")


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false`` only: a typing error must not turn a safeguard off."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise invalid(name, "true or false", text)
    return word == "true"


def byte_size(name: str, text: str) -> int:
    """A number of bytes, with the suffixes of Spark: ``128m`` is 128 MiB."""
    size = bytes_of(text) or 0
    if not 0 < size <= _MAX_LONG:
        raise invalid(name, "a positive size such as 128m", text)
    return size


def byte_limit(name: str, text: str) -> int:
    """A number of bytes as above, up to 64 MiB; 0 too, which switches something off."""
    size = bytes_of(text)
    if size is None or not 0 <= size <= _MOST_BYTES:
        raise invalid(name, "0 or a size such as 1m, at most 64m", text)
    return size


def absolute_directory(name: str, text: str) -> str:
    """A directory of every node: a relative path would be another one in each process."""
    try:
        path = local_path(text.strip())
    except LayoutNotFoundError:
        path = ""
    if not os.path.isabs(path):
        raise invalid(name, "the absolute path of a local directory, such as /var/cache/log", text)
    return path


def duration_ms(name: str, text: str) -> int:
    """A duration in milliseconds: ``500ms``, ``15m``, ``2h``; a plain number is milliseconds."""
    span = milliseconds(text) or 0
    if not 0 < span <= _MAX_LONG:
        raise invalid(name, "a positive duration such as 15m or 500ms", text)
    return span


def choice(*words: str) -> Parser:
    """A parser that accepts some words only."""

    def parse(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            listed = f"one of {', '.join(words)}" if len(words) > 1 else words[0]
            raise invalid(name, listed, text)
        return word

    return parse


def name_text(name: str, text: str) -> str:
    """A name that is not blank. The engine checks its characters."""
    if not text.strip():
        raise invalid(name, "a name", text)
    return text.strip()


def column_names(name: str, text: str) -> tuple[str, ...]:
    """Names of columns, separated by commas; in backticks if they have commas or outer spaces."""
    found, end = list[str](), 0
    while True:
        column = _COLUMN.match(text, end)
        if column is None:
            raise invalid(name, "names of columns, separated by commas", text)
        found.append(column[1].replace("``", "`") if column[1] else column[2])
        end = column.end()
        if not column[3]:
            return tuple(found)


def column_name(name: str, text: str) -> str:
    """The name of one column, in backticks if it has commas or outer spaces."""
    found = column_names(name, text)
    if len(found) > 1:
        raise invalid(name, "the name of one column", text)
    return found[0]


def directory(name: str, text: str) -> str:
    """An absolute path, from a path or a ``file:`` URI: a catalog stores paths as URIs.

    Or the URL of an object store.

    The driver makes it absolute, because executors have other working directories.
    """
    try:
        url = store_url(text)
    except LayoutNotFoundError as error:
        raise cursus_error("OPTION_INVALID", f"Option '{name}': {error}") from None
    if url is not None:
        return url
    if re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:", text, re.IGNORECASE):
        raise invalid(name, "a directory of a mounted file system", text)
    try:
        # A catalog may write file:name for a path without a slash.
        local = local_path(re.sub(r"^file:(?!/)", "", text, flags=re.IGNORECASE))
    except LayoutNotFoundError:
        raise invalid(name, "a directory", text) from None
    return os.path.abspath(local)


def raw(name: str, text: str) -> str:
    """The text unchanged, for options that are parsed together with others."""
    del name
    return text


def topic_list(name: str, text: str) -> Subscription:
    """Topics separated by commas."""
    topics = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    if not topics:
        raise cursus_error(
            "OPTION_INVALID",
            f"No topics to subscribe to as specified value for option '{name}' is {shown(text)}.",
        )
    return Subscription(topics=tuple(topics))


def topic_pattern(name: str, text: str) -> Subscription:
    """A regular expression of Python for full topic names."""
    pattern = text.strip()
    if not pattern:
        raise cursus_error(
            "OPTION_INVALID",
            f"Pattern to subscribe is empty as specified value for option '{name}' is "
            f"{shown(text)}.",
        )
    _refuse_java_dialect(name, pattern)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid(name, f"a regular expression ({error})", text) from None
    return Subscription(pattern=pattern)


def topic_partitions(name: str, text: str) -> Subscription:
    """Partitions by topic, as JSON."""
    try:
        found = load_json(text)
        if not isinstance(found, dict) or not found or "" in found:
            raise ValueError("not an object of topics")
        chosen = tuple((topic, _partition_list(found[topic])) for topic in sorted(found))
    except ValueError:
        raise cursus_error(
            "OPTION_INVALID",
            f"Option '{name}': expected JSON such as {_ASSIGN_EXAMPLE}, got {shown(text)}.",
        ) from None
    return Subscription(partitions=chosen)


def _refuse_java_dialect(name: str, pattern: str) -> None:
    """Name Python's way to write what only Java's regular expressions have."""
    found = re.search(r"(?<!\\)(?:\\\\)*(\\[pP](?:\{(\w*)[^}]*\}?|\w?)|\\Q)", pattern)
    if found is None:
        if "&&" not in pattern:
            return
        part, hint = "&&", "Write the characters that are left"
    elif found[1] == r"\Q":
        part, hint = r"\Q", "Write a backslash before each special character"
    else:
        part = found[1]
        ranges = _JAVA_CLASSES.get(found[2] or part[2:], "a-zA-Z0-9._-")
        hint = f"Write the characters, such as [{'^' if part[1] == 'P' else ''}{ranges}]"
    raise cursus_error(
        "OPTION_INVALID",
        f"Option '{name}' is a regular expression of Python, which has no {shown(part)}. {hint}. "
        f"Got {shown(pattern)}.",
    )


def _partition_list(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("not a list of partitions")
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in value):
        raise ValueError("not partition numbers")
    return tuple(sorted({parse_partition(str(number)) for number in value}))


def _number(name: str, text: str, low: int, high: int, expectation: str) -> int:
    digits = text.strip()
    number = int(digits) if re.fullmatch(r"\+?[0-9]{1,19}", digits) else -1
    if not low <= number <= high:
        raise invalid(name, expectation, text)
    return number
