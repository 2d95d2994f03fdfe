"""``metrics --serve``: for scrapers of this machine, bounded, and ended by a signal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from storage_core import Store
from storage_core.cli.metrics.server import MetricsServer, is_loopback, parse_address
from tests.support.cli_runner import LAYOUTS, TOPIC, done, made, run, spawn
from tests.support.paths import ROOT

_PATH = f"{os.environ['PATH']}:{ROOT}/.prometheus/usr/bin"  # where .ci/setup unpacks it
PROMETHEUS, PROMTOOL = (shutil.which(name, path=_PATH) for name in ("prometheus", "promtool"))


@contextmanager
def serving(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that serves, and the URL that it says."""
    with spawn("metrics", path, "--serve", "127.0.0.1:0") as child:
        try:
            assert child.stderr is not None
            said = child.stderr.readline().decode()
            assert said.startswith("serving http://127.0.0.1:"), said
            yield child, said.removeprefix("serving ").strip()
        finally:
            child.kill()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def values(text: str) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_scraper_sees_what_is_there_until_a_signal_ends_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    made(tmp_path, values=3)
    with serving(tmp_path) as (child, url):
        assert values(get(url))["cursus_partition_end_offset"] == 3
        done("append", tmp_path, TOPIC, given="a\nb\n")
        time.sleep(1.1)  # an answer is a second old at most
        assert values(get(url))["cursus_partition_end_offset"] == 5
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(url.replace("/metrics", "/etc/passwd"))
        child.send_signal(number)
        out, err = child.communicate(timeout=30)
        assert (child.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0.0.0.0:1", "no loopback address"),
        ("192.0.2.7:9464", "no loopback address"),
        ("[::]:9464", "no loopback address"),
        ("9464", "is not ADDRESS:PORT"),
        ("127.0.0.1:x", "is not ADDRESS:PORT"),
        ("127.0.0.1:70000", "is not ADDRESS:PORT"),
    ],
)
def test_other_addresses_are_refused_unless_asked_for(
    tmp_path: Path, text: str, problem: str
) -> None:
    made(tmp_path)
    answer = run("metrics", tmp_path, "--serve", text)
    assert (answer.code, problem in answer.err) == (2, True)


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    made(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = run("metrics", tmp_path, "--serve", f"127.0.0.1:{taken.getsockname()[1]}")
    assert answer.code == 1
    assert answer.err.startswith("cursus: [IO]")
    assert answer.err.count("\n") == 1


def test_addresses() -> None:
    assert parse_address("[::1]:9464") == ("::1", 9464)
    assert [is_loopback(host) for host in ("::1", "127.9.9.9", "localhost", "example.org")] == [
        True, True, True, False,
    ]  # fmt: skip


@contextmanager
def in_thread(make: Any) -> Iterator[MetricsServer]:
    with MetricsServer(("127.0.0.1", 0), make, time.monotonic) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_a_store_that_fails_is_an_error_of_the_scrape() -> None:
    def fail() -> str:
        raise OSError(5, "Input/output error")

    with in_thread(fail) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(server.url)
        assert caught.value.code == 500
        assert b"Input/output error" in caught.value.read()


def test_connections_that_say_nothing_do_not_pile_up() -> None:
    made_texts = []

    def make() -> str:
        made_texts.append(1)
        return "cursus_topics 1\n"

    with in_thread(make) as server:
        place = ("127.0.0.1", server.server_port)
        silent = [socket.create_connection(place, timeout=30) for _ in range(8)]
        time.sleep(0.2)
        with socket.create_connection(place, timeout=30) as late:
            assert late.recv(1) == b""  # closed at once
        for each in silent:
            each.close()
        deadline = time.monotonic() + 30
        while True:
            try:
                assert get(server.url) == "cursus_topics 1\n"
                break
            except OSError:
                assert time.monotonic() < deadline
        for _ in range(20):
            get(server.url)
        assert len(made_texts) <= 3  # at most once a second


@pytest.mark.slow
@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_promtool_accepts_what_is_printed(tmp_path: Path, layout: str) -> None:
    path = made(tmp_path / "log", layout, values=3)
    with Store.open(path) as store:
        store.commit_offsets("readers", {TOPIC: {0: 1}})
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=done("metrics", path).out,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus here")
def test_a_real_prometheus_scrapes_it(tmp_path: Path) -> None:
    made(tmp_path / "log", values=3)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(tmp_path / "log") as (_, url):
        target = url.removeprefix("http://").removesuffix("/metrics")
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n"
            f"  - {{job_name: cursus, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        words = [
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with subprocess.Popen(
            [str(PROMETHEUS), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            try:
                query = "cursus_partition_end_offset"
                found: list[Any] = []
                deadline = time.monotonic() + 60
                while not found:
                    assert time.monotonic() < deadline
                    time.sleep(0.5)
                    try:
                        answer = get(f"http://127.0.0.1:{port}/api/v1/query?query={query}")
                    except OSError:
                        continue
                    found = json.loads(answer)["data"]["result"]
                assert found[0]["metric"]["topic"] == TOPIC
                assert found[0]["value"][1] == "3"
            finally:
                child.terminate()
                child.wait(timeout=30)
