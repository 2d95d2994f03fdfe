"""The command as a process: exit codes, pipes, terminals, completion, missing packages."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from storage_core import Store, __version__
from tests.support.cli_runner import COMMAND, ENVIRONMENT, TOPIC, made, run, timed


def process(
    *words: object, given: bytes = b"", environment: dict[str, str] | None = None
) -> tuple[int, str, str]:
    finished = subprocess.run(
        [*COMMAND, *(str(word) for word in words)],
        input=given,
        capture_output=True,
        env={**ENVIRONMENT, **(environment or {})},
        timeout=120,
    )
    return finished.returncode, finished.stdout.decode(), finished.stderr.decode()


def on_a_terminal(*words: object, typed: bytes = b"") -> tuple[int, str]:
    """Run the command with a terminal for input and output."""
    ours, theirs = pty.openpty()
    try:
        child = subprocess.Popen(
            [*COMMAND, *(str(word) for word in words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "200"},
        )
        os.close(theirs)
        os.write(ours, typed)
        seen = b""
        with suppress(OSError):  # the terminal hangs up when the last process is gone
            while piece := os.read(ours, 65536):
                seen += piece
        return child.wait(timeout=120), seen.decode()
    finally:
        os.close(ours)


def test_exit_codes_tell_done_from_problems_from_wrong_usage(tmp_path: Path) -> None:
    timed(tmp_path)
    assert process("topics", tmp_path)[0] == 0
    code, out, err = process("cat", tmp_path, "nosuch")
    assert (code, out) == (1, "")
    assert err.startswith("cursus: [TOPIC_NOT_FOUND] ")
    assert err.count("\n") == 1
    assert process("topics", tmp_path / "nowhere")[2].startswith("cursus: [LAYOUT_NOT_FOUND] ")
    code, _, err = process("cat", tmp_path, TOPIC, "--form", "pdf")
    assert code == 2
    assert "No such option" in err
    assert process("--version")[1] == f"cursus, version {__version__}\n"


def test_what_the_system_refuses_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 300)
    code, _, err = process("create", path, TOPIC)
    assert (code, err) == (
        1,
        f"cursus: [IO] The operating system refused '{path}': File name too long. Check that it "
        "exists and that this user may use it.\n",
    )


def test_a_page_is_not_printed_on_a_terminal(tmp_path: Path) -> None:
    made(tmp_path)
    code, seen = on_a_terminal("report", tmp_path)
    assert code == 2
    assert "The page would fill the terminal. Pass --output report.html." in seen
    assert "<html" not in seen
    assert on_a_terminal("report", tmp_path, "-o", tmp_path / "report.html")[0] == 0


def test_a_pipe_gets_no_colours_and_no_bars_and_quiet_commands_say_nothing(tmp_path: Path) -> None:
    made(tmp_path)
    for words in (["topics"], ["describe"], ["check", "-q"], ["report", "--quiet"]):
        code, out, err = process(words[0], tmp_path, *words[1:])
        assert (code, err) == (0, "")
        assert "\x1b" not in out
    assert process("append", tmp_path, TOPIC, "-q", given=b"a\nb\n") == (0, "", "")
    said = process("append", tmp_path, TOPIC, given=b"a\nb\n")
    assert said == (0, "", "2 records appended\n")


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.create_topic(TOPIC)
        store.append(TOPIC, 0, [b"x" * 1000] * 5000)
    words = [*COMMAND, "cat", str(tmp_path), TOPIC]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith(b"0:0")
        child.stdout.close()
        assert child.wait(timeout=120) == 0
        assert child.stderr.read() == b""


def test_lines_are_appended_while_the_pipe_is_open(tmp_path: Path) -> None:
    made(tmp_path, values=0)
    words = [*COMMAND, "append", str(tmp_path), TOPIC]
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=ENVIRONMENT) as child:
        assert child.stdin is not None
        child.stdin.write(b"first\nhalf")
        child.stdin.flush()
        store = Store.open(tmp_path)
        while store.offsets(TOPIC, 0).end < 1:
            assert child.poll() is None
        child.stdin.write(b" a line\n")
        child.stdin.close()
        assert child.wait(timeout=120) == 0
    found = [row["value"] for batch in store.read(TOPIC, 0) for row in batch.to_pylist()]
    assert found == [b"first", b"half a line"]


def test_people_get_tables_and_questions(tmp_path: Path) -> None:
    made(tmp_path)
    code, seen = on_a_terminal("topics", tmp_path)
    assert code == 0
    assert "──" in seen
    code, seen = on_a_terminal("delete", tmp_path, TOPIC, typed=b"y\n")
    assert code == 0
    assert "Delete orders (1 partition, 5 records" in seen
    assert "orders is deleted" in seen


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    answer = run("completion", shell)
    assert answer.code == 0
    assert "_CURSUS_COMPLETE" in answer.out


def test_commands_and_topics_are_completed(tmp_path: Path) -> None:
    log = made(tmp_path / "my log")
    asked = {"_CURSUS_COMPLETE": "bash_complete", "COMP_WORDS": "cursus des", "COMP_CWORD": "1"}
    assert process(environment=asked)[1].split() == ["plain,describe"]
    asked |= {"COMP_WORDS": f"cursus cat {shlex.quote(str(log))} or", "COMP_CWORD": "3"}
    assert process(environment=asked)[1].split() == [f"plain,{TOPIC}"]


@pytest.mark.parametrize("package", ["click", "rich"])
def test_missing_packages_are_named_with_the_cure(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import storage_core.cli as c; c.main()"
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
    )
    assert finished.returncode == 2
    assert finished.stderr == (
        f"cursus: {package} is not installed. Run: pip install cursus-spark[cli]\n"
    )
