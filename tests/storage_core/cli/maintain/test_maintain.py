"""``maintain``: all maintenance in the foreground, once or at intervals."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from storage_core import Store
from tests.support.cli_runner import done, run, spawn
from tests.support.store_lives import in_segments, numbered
from tests.support.stores import TOPIC, names, offsets, overwrite, segment


def asked_for(path: Path) -> None:
    """A store with work for retention, compaction and merge, in two topics."""
    store = in_segments(
        path, numbered(10, size=200), cleanup_policy="delete,compact", merge_below_bytes=4096
    )
    store.create_topic("u", retention_bytes=0)
    for _ in range(2):
        store.append("u", 0, [b"x"])
        store.roll("u", 0)
    store.close()


def test_one_round_does_what_the_settings_ask_for_and_says_so(tmp_path: Path) -> None:
    asked_for(tmp_path)
    answer = done("maintain", tmp_path)
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert all(re.match(r"20\d\d-\d\d-\d\dT[\d:]{8}Z INFO ", line) for line in lines)
    assert "compact of t-0: 10 segments became" in answer.err
    assert "merge of t-0:" in answer.err
    assert "retention of topic 'u' deleted 1 segment\n" in answer.err
    assert lines[-1].endswith("s, 0 failures")
    assert offsets(Store.open(tmp_path)) == [28, 29, 30]
    assert len(names(tmp_path, ".log")) == 2
    again = done("maintain", tmp_path, "--scrub-every", "1h")
    assert len(again.err.splitlines()) == 2  # nothing to do, and what the scrub read
    assert "scrub verified" in again.err
    assert done("maintain", tmp_path, "-q").err == ""


def test_a_step_that_fails_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    asked_for(tmp_path)
    overwrite(segment(tmp_path, 6), lambda data: data.__setitem__(90, data[90] ^ 1))
    answer = run("maintain", tmp_path)
    assert answer.code == 1
    assert "WARNING maintenance of topic 't' failed: " in answer.err
    assert "retention of topic 'u' deleted 1 segment\n" in answer.err
    assert answer.err.splitlines()[-1].endswith("s, 1 failure")
    quiet = run("maintain", tmp_path, "--quiet", "--scrub-every", "1h")
    assert quiet.code == 1
    assert "INFO" not in quiet.err
    assert "ERROR scrub: t-0:" in quiet.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_rounds_go_on_until_a_signal_ends_them_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    asked_for(tmp_path)
    with spawn("maintain", tmp_path, "--every", "200ms") as child:
        assert child.stderr is not None
        seen = [child.stderr.readline().decode() for _ in range(2)]
        while sum("maintained 2 topics" in line for line in seen) < 2:
            seen.append(child.stderr.readline().decode())
            assert seen[-1], seen
        child.send_signal(number)
        begun = time.monotonic()
        _, err = child.communicate(timeout=60)
        assert time.monotonic() - begun < 30
        assert child.returncode == 0
        assert err.decode().splitlines()[-1] == "stopped"
    assert re.fullmatch(r"maintaining .* every 0\.2 s\n", seen[0])
    assert Store.open(tmp_path).check() == []


def test_wrong_intervals_are_one_line(tmp_path: Path) -> None:
    asked_for(tmp_path)
    assert "nor such as 12h" in run("maintain", tmp_path, "--every", "soon").err
    assert run("maintain", tmp_path, "--every", "1").err.startswith("cursus: [CONFIG_INVALID]")


def test_a_brokers_directory_gets_what_its_layout_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("create", tmp_path, TOPIC, "--layout", "rustlog")
    done("append", tmp_path, TOPIC, given="a\nb\n")
    monkeypatch.setenv("CURSUS_MERGE_BELOW_BYTES", "1000000")
    monkeypatch.setenv("CURSUS_COLD_COMPRESSION", "zstd")
    monkeypatch.setenv("CURSUS_CLEANUP_POLICY", "delete,compact")
    assert "0 failures" in done("maintain", tmp_path).err
