"""Texts use the field's words: the old words stay out of pages, messages, comments and docstrings.

A text is what a person reads; so is a name in code. Public names and names on disk stay as they
are: file names and code spans are not searched. ``docs/glossary.md`` defines the words; it may name
others under "also called", so it is not searched.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

# A space stands for any white space, so that a phrase is found across the end of a line.
OLD_WORDS = {
    r"(visible|published|shown) ends?": "high watermark",
    r"(?<!high\s)(?<!event-time\s)watermarks?": "high watermark, or (Spark's) event-time watermark",
    r"durable points?": "recovery point",
    r"(closed|closing) (log )?segments?": "sealed segment",
    r"segments? (is|are|was|were|be|been|being) closed": "sealed",
    r"clos(es?|ed|ing) (a|an|the|its|their|that|this|every) (active |last )?segments?": "seals",
    r"redo records?": "intent",
    r"(?<!\.)tombs?": "deletion marker (a .tomb file); tombstone (a record with a null value)",
    r"care|(?<!/)upkeep|look(s|ed|ing)? after": "maintenance, maintain",
    r"settl(es?|ed|ing)": "sync, finish, decide: say which",
    r"told": "gets an error, is distinguished: say which",
    r"odd": "say what is wrong",
    r"strangers?|none of ours": "unrecognised file",
    r"somebody": "name the actor: writer, reader, committer, task",
    r"died|dead (writer|process|holder|committer|creator|maker|job|one)s?": "crashed, was killed",
    r"anew": "again, new",
    r"so many": "at least N, the number of …",
    r"young(er|est)?": "recent, later",
    r"(?<!far\s)(?<!left\s)behind(?= (?!in\b|by\b)\w)": "after (behind is for lag)",
    r"footing": "fingerprint",
    r"lanes?": "name what runs side by side",
    r"spread": "parallel",
    r"dirt": "what compaction has not cleaned (Kafka's dirty ratio is fine)",
    r"as often as it takes": "idempotently",
    r"wins over": "takes precedence over",
}
PATTERNS = {
    re.compile(rf"\b(?:{words})\b".replace(" ", r"\s+"), re.IGNORECASE): better
    for words, better in OLD_WORDS.items()
}
# One search for all, because most texts have none.
ANY = re.compile("|".join(pattern.pattern for pattern in PATTERNS), re.IGNORECASE)

SEARCHED = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "conf",
    "docs",
    "examples",
    "benchmarks",
    "storage_core",
    "cursus_spark",
    "tests",
]
NOT_SEARCHED = ("docs/glossary.md", "tests/docs/test_words.py")


PUBLIC_NAMES = ("visible_ends",)
# Code that reads and writes the file ``watermark`` is named after it.
FILE_NAME = "event-time watermark"


def searched_files() -> list[str]:
    files = [
        path
        for top in SEARCHED
        for path in [ROOT / top, *sorted((ROOT / top).rglob("*"))]
        if path.suffix in TEXTS
    ]
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return [name for name in names if name not in NOT_SEARCHED]


def page_texts(source: str) -> Iterator[tuple[int, str]]:
    """The prose of a page without code spans, and the comments of its programs."""
    in_program, kept = False, list[str]()
    for line in source.splitlines():
        if line.startswith("```"):
            in_program, line = not in_program, ""
        kept.append(line.partition("#")[2] if in_program else line)
    yield 1, re.sub(r"`[^`]*`|\]\([^)]*\)", "", "\n".join(kept))


@lru_cache(maxsize=1)
def nodes(source: str) -> list[ast.AST]:
    """What a program consists of; texts and names are looked for one after the other."""
    return list(ast.walk(ast.parse(source)))


def program_texts(source: str) -> Iterator[tuple[int, str]]:
    """The comments, and every string of several words: docstrings, messages, help."""
    for node in nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, re.sub(r"``.*?``", "", node.value)
    # Taking a file apart into tokens takes longer than all else, and few lines have old words.
    if any(ANY.search(line, line.find("#")) for line in source.splitlines() if "#" in line):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def defined_names(source: str) -> Iterator[tuple[int, str]]:
    """The functions, classes, arguments and variables that a file defines."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def old_names(name: str, source: str) -> list[str]:
    """Every name with an old word, with its line and what to write instead."""
    return [
        f"{name}:{line}: {found!r}: {better}"
        for line, found in defined_names(source)
        if found not in PUBLIC_NAMES and ANY.search(found.replace("_", " "))
        for pattern, better in PATTERNS.items()
        if FILE_NAME not in better and pattern.search(found.replace("_", " "))
    ]


def setting_texts(source: str) -> Iterator[tuple[int, str]]:
    """The comments of a file of settings."""
    yield 1, "\n".join(line.partition("#")[2] for line in source.splitlines())


TEXTS = {
    ".md": page_texts,
    ".py": program_texts,
    ".sql": lambda source: [(1, source)],
    ".yaml": setting_texts,
    ".conf": setting_texts,
}


def old_words(name: str, source: str) -> list[str]:
    """Every old word of a file, with its line and what to write instead."""
    return [
        f"{name}:{line + text.count(chr(10), 0, match.start())}: {match[0]!r}: {better}"
        for line, text in TEXTS[Path(name).suffix](source)
        if ANY.search(text)
        for pattern, better in PATTERNS.items()
        for match in pattern.finditer(text)
    ]


@pytest.mark.parametrize("name", searched_files())
def test_old_words_stay_out(name: str) -> None:
    source = (ROOT / name).read_text(encoding="utf-8")
    assert old_words(name, source) == []
    assert not name.endswith(".py") or old_names(name, source) == []


@pytest.mark.parametrize(
    "source",
    ["def test_a_dead_writer(): ...", "class Told: ...", "def f(young): ...", "x.footing = 1"],
)
def test_old_words_are_found_in_names(source: str) -> None:
    assert len(old_names("a.py", source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.md", "Readers stop at the visible\nend."),
        ("a.md", "It writes a tomb."),
        ("a.md", "```python\nx = 1  # made anew\n```"),
        ("a.py", '"""Where the lanes end."""'),
        ("a.py", "x = 1  # a dead writer's bytes"),
        ("a.py", 'raise ValueError(f"{x} closed segments")'),
        ("a.yaml", "a: 1  # what nobody looks after"),
    ],
)
def test_old_words_are_found(name: str, source: str) -> None:
    assert len(old_words(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.md", "A `.tomb` file, the file `watermark`, a closed handle, the high watermark."),
        ("a.md", "`min_cleanable_dirty_ratio`, the dirty ratio, how far behind a group is."),
        ("a.md", "```python\nreports: list[UpkeepReport] = store.visible_ends()\n```"),
        ("a.md", "Tombstones stay for a day. Spark's event-time watermark. [x](tomb.md)"),
        ("a.py", 'x = "watermark", f"{base}.tomb", "meta/upkeep"'),
        ("a.py", '"""Returns an UpkeepReport; see ``meta/upkeep`` and visible_ends."""'),
    ],
)
def test_names_of_the_field_and_public_names_are_allowed(name: str, source: str) -> None:
    assert old_words(name, source) == []
