"""The benchmarks run, on sizes too small to mean anything; no test looks at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import chart, data
from benchmarks.__main__ import benchmarks, main
from benchmarks.growth import exponent
from benchmarks.measure import Bar, Row, Samples, interleaved, speed_row, table, time_row
from benchmarks.processor_time import TICKS, Used, used_by, work_between

AROUND = {
    "processors": 2,
    "memory_gib": 8,
    "file_system": "<ext4>",
    "python": "3",
    "pyspark": "4.3",
    "pyarrow": "4",
    "date": "2024-01-31",
}


def test_every_benchmark_of_the_engine_runs_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "work"))
    assert main(["--tiny", "--results", str(tmp_path / "results"), "core"]) == 0
    shown = capsys.readouterr().out
    for what in ("sealed read", "append, no fsync", "offset lookup", "time lookup", "memory"):
        assert what in shown
    (kept,) = (tmp_path / "results").iterdir()
    rows = json.loads(kept.read_text())["rows"]
    assert all(row["ratio"] > 0 for row in rows)
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("handlers", ("append(), 1 thread", "append(), 4 threads", "low-latency", "bare loop")),
        ("layouts", ("rustlog sealed read", "cursus first read", "cursus-broker", "row encode")),
        (
            "varied_records",
            ("rustlog sealed read, varied", "cursus append, varied", "1,000 records"),
        ),
        ("memory_shapes", ("worker memory, read, records of 10 B", "worker memory, write")),
        ("lifecycle", ("merge", "recompress to none", "under lz4", "compaction", "memory")),
        ("growth", ("open and first read", "read all", "append", "seek by time", "plan")),
    ],
)
def test_a_benchmark_runs_and_leaves_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    shown: tuple[str, ...],
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "work"))
    assert main(["--tiny", "--results", str(tmp_path / "results"), name]) == 0
    printed = capsys.readouterr().out
    assert [what for what in shown if what not in printed] == []
    assert list((tmp_path / "work").iterdir()) == []


def test_a_benchmark_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = time_row("x", Samples((1.0,)), Samples((2.0,)), None)

    def breaking(sizes: data.Sizes, directory: Path) -> Iterator[Row]:  # noqa: ARG001
        yield row
        raise TimeoutError("the broker does not answer")

    found = {"breaking": breaking, "sound": lambda sizes, directory: iter([row])}  # noqa: ARG005
    monkeypatch.setattr("benchmarks.__main__.benchmarks", lambda **_: found)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "work"))
    assert main(["--tiny", "--results", str(tmp_path / "results")]) == 1
    shown = capsys.readouterr()
    assert "TimeoutError: the broker does not answer" in shown.err
    assert "Failed: breaking" in shown.out
    (kept,) = (tmp_path / "results").iterdir()
    assert len(json.loads(kept.read_text())["rows"]) == 2


def test_an_unknown_name_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["cores"])
    assert "there are: core" in capsys.readouterr().err


def test_helpers_are_not_taken_for_benchmarks() -> None:
    assert {"core", "handlers", "layouts", "typed"} <= set(benchmarks())
    helpers = {"data", "events", "measure", "memory", "typed_ceiling", "sized_worker"}
    assert not helpers & set(benchmarks())


def test_sides_take_turns_and_the_first_one_changes() -> None:
    turns: list[str] = []

    def side(name: str) -> float:
        turns.append(name)
        return float(len(turns))

    found = interleaved({"a": lambda: side("a"), "b": lambda: side("b")}, rounds=2, warmups=1)
    assert turns == ["a", "b", "a", "b", "b", "a"]
    assert found["a"].seconds == (3.0, 6.0)


def test_the_best_round_counts_and_the_median_says_how_noisy_it_was() -> None:
    ours, baseline = Samples((2.0, 1.0, 4.0)), Samples((0.5, 0.5, 0.5))
    row = speed_row("x", ours, baseline, 10**9, Bar("at least", 0.6), "y")
    assert (row.ours, row.baseline, row.ratio) == ("1.00 GB/s", "2.00 GB/s y", 0.5)
    assert (row.verdict, row.noisy, row.variation) == ("MISSED", True, 1.0)
    slow = time_row("x", ours, baseline, Bar("at most", 2), per=1000)
    assert (slow.ours, slow.baseline, slow.verdict) == ("1.00 ms", "500 µs", "ok")
    assert "MISSED" in table([row, slow])


def test_processor_time_is_shared_out_between_the_jvm_its_children_and_the_kernel() -> None:
    before = {1: Used(100, 10), 2: Used(50, 0), 3: Used(7, 7)}
    after = {1: Used(300, 20), 2: Used(80, 5), 4: Used(20, 15)}
    found = work_between(before, after, jvm=1)
    assert found == (200 / TICKS, (30 + 20) / TICKS, (10 + 5 + 15) / TICKS)
    assert work_between(before, before, jvm=1) == (1 / TICKS,) * 3, "a tick is the least"
    assert os.getpid() in used_by(os.getppid())


def test_built_records_have_the_size_that_the_bars_speak_of() -> None:
    column = data.values(3)
    assert [len(value) for value in column.to_pylist()] == [data.RECORD_BYTES] * 3


def test_growth_is_the_slope_on_logarithmic_axes() -> None:
    linear = [(size, Samples((size / 1e6,))) for size in (10, 100, 1000)]
    assert exponent(linear) == pytest.approx(1)
    assert exponent([(size, Samples((0.5,))) for size in (10, 100, 1000)]) == pytest.approx(0)


def test_what_has_to_be_fetched_is_only_run_by_name() -> None:
    assert "kafka" in benchmarks()
    assert "kafka" not in benchmarks(on_request=False)


def test_the_chart_shows_what_was_measured_and_leaves_out_the_rest() -> None:
    rows = [
        {"what": "sealed read", "baseline": "9 GB/s CRC32C alone", "ours": "1 GB/s", "ratio": 0.1},
        {"what": "sealed read", "baseline": "9 GB/s CRC32C alone", "ours": "6 GB/s", "ratio": 0.6},
        {"what": "write, no key", "baseline": "9 MB/s Kafka", "ours": "50 MB/s", "ratio": 5.5},
        {"what": "nobody asks for this", "baseline": "1", "ours": "2", "ratio": 2.0},
    ]
    found = chart.find(rows)
    assert [item.ratio for item in found] == [5.5, 0.6]
    drawn = chart.draw(found, AROUND)
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "Engine read against CRC32C alone" in drawn
    assert "JSON" not in drawn


def test_the_chart_keeps_what_it_showed_until_it_is_measured_again() -> None:
    first = chart.draw(
        [
            chart.Found("Spark read against JSON", 4.0, "4 MB/s", "1 MB/s JSON", 0.1),
            chart.Found("Engine read against CRC32C alone", 0.5, "1 GB/s", "2 GB/s CRC32C alone"),
        ],
        AROUND,
    )
    now = [chart.Found("Engine read against CRC32C alone", 0.8, "8 GB/s", "10 GB/s CRC32C alone")]
    merged = chart.with_earlier(now, first)
    assert [(item.label, item.ratio) for item in merged] == [
        ("Spark read against JSON", 4.0),
        ("Engine read against CRC32C alone", 0.8),
    ]
    assert chart.with_earlier(now, "") == now


def test_only_runs_at_full_size_are_drawn(tmp_path: Path) -> None:
    for name, size in (("1", "full"), ("2", "quick")):
        run = {"environment": {"size": size}, "rows": [{"what": size}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    assert chart.last_run(tmp_path) == ({"size": "full"}, [{"what": "full"}])
    (tmp_path / "1.json").unlink()
    with pytest.raises(SystemExit, match="run make bench first"):
        chart.last_run(tmp_path)
