"""Every command on stores of objects, at a URL and in a directory: it works, or says why not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from storage_core import Store
from storage_core.cli.app import SECTIONS
from storage_core.cli.maintain import health
from storage_core.store import open_directory
from tests.support.cli_runner import Answer, run
from tests.support.objects.object_server import BUCKET, KEY, SECRET, running
from tests.support.stores import rows

pytest.importorskip("obstore", reason="the extra [objects] is not installed")
_numbers = itertools.count()
LAYOUT = ("--layout", "objects")


class Case(NamedTuple):
    """A command line after PATH; its exit code; a pattern of what it prints; its input."""

    words: str
    code: int = 0
    prints: str = ""
    given: str | None = None


# In this order: later commands see what earlier ones wrote.
CASES = [
    Case("create t --partitions 2 --set cleanup_policy=compact"),
    Case("create t", 1, "TOPIC_EXISTS"),
    Case("create t --if-not-exists"),
    Case("create rows --schema id_BIGINT,_name_STRING --key-columns id"),
    Case("append t --key-separator :", given="a:1\nb:1\na:2\nb:2\n"),
    Case("append t --key-separator :", given="a:3\n"),
    Case("append rows --json", given='{"id": 1, "name": "x"}\n{"id": 2}\n'),
    Case("append rows --json", 1, "SCHEMA_MISMATCH", given='{"id": "no number"}\n'),
    Case("alter t --partitions 3 --set retention_ms=86400000"),
    Case("alter rows --add-column late_STRING"),
    Case("topics", prints=r"t +records +3 +\d+ +5"),
    Case("describe", prints="layout objects, 2 topics"),
    Case("describe rows --json", prints="late STRING"),
    Case("cat t --json", prints='"value": "3"'),
    Case("cat rows --where id>1", prints="id=2"),
    Case("cat t --at 1h", prints="3"),
    Case("tail t -n 1", prints="3"),
    Case("tail t -f --max 1 -n 1", prints="3"),
    Case("dump t --records", prints=r"frame position=0(.|\n)*\"value\": \"3\""),
    Case("dump rows", prints="column name"),
    Case("ledger"),
    Case("report -o -", prints="<html"),
    Case("groups g --reset-to earliest -t t -y"),
    Case("groups", prints=r"g +t +"),
    Case("check --json", prints=r"\[\]"),
    Case("check --strict"),
    Case("check --store-semantics --json", prints=r"\[\]"),
    Case("repair -y", prints="rows"),
    Case("skip t", 1, "layout objects cannot skip damaged records"),
    Case("skip t -p 0 --from 0 --to 1 -y", 1, "layout objects cannot skip damaged records"),
    Case("pending"),
    Case("pending --finish x -y", 1, "a commit is one step"),
    Case("scrub --json", prints='"problems": \\[\\]'),
    Case("metrics", prints=r'cursus_group_lag_seconds{group="g",topic="t",partition="1"} \d'),
    Case("roll t", prints="no slice ever grows"),
    Case("gc -n --json", prints='"objects": 0'),
    Case("gc -y"),
    Case("merge -n t", prints="2 → 1"),
    Case("merge -y t", prints="2 → 1"),
    Case("compact -n t", prints=r"1 → 1"),
    Case("compact -y t", prints=r"1 → 1"),
    Case("maintain", prints="maintained 2 topics in .*, 0 failures"),
    Case("recompress -y --compression zstd", prints="1 → 1"),
    Case("retain -n --json", prints=r"\[\]"),
    Case("retain -y"),
    Case("retain t --before 1 -y", prints="0 → 0"),
    Case("cat t", prints="3"),
    Case("check --json", prints=r"\[\]"),
    Case("delete rows -y"),
    Case("delete rows -y", 1, "TOPIC_NOT_FOUND"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Mapping[str, str]]:
    with running() as options:
        yield options


@pytest.fixture
def environment(server: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The server as a cluster has it: nothing on the command line."""
    for name in ("ENDPOINT", "REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", server[name.lower()])


def url() -> str:
    return f"s3://{BUCKET}/verbs/{next(_numbers)}"


def played(path: str, case: Case, *more: str) -> Answer:
    command, *rest = [word.replace("_", " ") if "_" in word and word[0] in "il" else word
                      for word in case.words.split()]  # fmt: skip
    return run(command, path, *rest, *more, given=case.given)


@pytest.mark.parametrize("kind", ["url", "directory"])
@pytest.mark.usefixtures("environment")
def test_every_command_works_or_says_why_not(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    briefly = partial(open_directory.semantics_problems, rounds=3)
    monkeypatch.setattr(health, "semantics_problems", briefly)
    path = url() if kind == "url" else str(tmp_path / "log")
    problems = []
    for case in CASES:
        more = LAYOUT if case.words.startswith("create t --p") and kind == "directory" else ()
        answer = played(path, case, *more)
        shown = answer.out + answer.err
        if answer.code != case.code or not re.search(case.prints, shown):
            problems.append(f"{case.words}: {answer.code}: {shown[-600:]}")
        if case.code and len(answer.err.splitlines()) > 2:
            problems.append(f"{case.words}: more than a sentence: {answer.err}")
        if SECRET in shown or KEY in shown:
            problems.append(f"{case.words}: shows a key")
    assert not problems, "\n".join(problems)


def test_the_table_has_every_command() -> None:
    tried = {case.words.split()[0] for case in CASES} | {"convert", "completion"}
    assert tried == {str(each.name) for section in SECTIONS.values() for each in section}


@pytest.mark.usefixtures("environment")
def test_converted_to_a_url_and_back(tmp_path: Path) -> None:
    native, back, there = tmp_path / "native", tmp_path / "back", url()
    store = Store.open(native, create=True)
    store.create_topic("t", 2)
    for number in range(30):
        store.append("t", number % 2, [b"%d" % number], keys=[b"k"], timestamps=[number])
    store.delete_records("t", {0: 4})
    assert run("convert", native, there).code == 0
    assert run("convert", there, there).code == 1
    store.append("t", 1, [b"late"])
    assert '"copied": 1' in run("convert", native, there, "--json").out
    assert run("convert", there, back).code == 0
    for partition in (0, 1):
        expected = rows(store.read("t", partition))
        assert rows(Store.open(there).read("t", partition)) == expected
        assert rows(Store.open(back).read("t", partition)) == expected
    refused = run("convert", native, url(), "--renumber")
    assert (refused.code, "keeps the offsets" in refused.err) == (1, True)


def test_storage_options_of_a_command_line(server: Mapping[str, str], tmp_path: Path) -> None:
    pairs = [word for name, value in server.items() for word in ("--storage", f"{name}={value}")]
    path = url()
    assert run("create", path, "t", *pairs).code == 0
    assert run("append", path, "t", *pairs, given="x\n").code == 0
    assert run("convert", path, tmp_path / "native", *pairs).code == 0
    assert run("cat", tmp_path / "native", "t", "--raw").out == "x\n"
    for pair, code, text in (
        (SECRET, 2, "not NAME=VALUE"),
        (f"nonsense={SECRET}", 1, "'nonsense' is not valid"),
        (f"timeout={SECRET}", 1, "cannot be opened"),
    ):
        answer = run("topics", path, *pairs, "--storage", pair)
        assert (answer.code, text in answer.err, SECRET in answer.err) == (code, True, False)
    answer = run("topics", tmp_path / "native", "--storage", f"region={SECRET}")
    assert (answer.code, "of object stores" in answer.err) == (1, True)
