"""The report as one HTML page without scripts and without other files."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..._version import __version__
from ...layouts.registry import LAYOUTS
from ...schema.ddl import type_ddl
from ..common.formatting import duration, moment, number, plural, settings_text, size
from ..inspect.size_strips import axis_of
from ..inspect.store_facts import Lag, PartitionFacts, TopicFacts, out_of_order
from .charts import MOST_ROWS, Bar, columns, share_bar, timeline
from .statistics import Compression, Flow, Sizes, StoreReport, TopicReport
from .style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""A browser loads and runs nothing, even if a topic name or an error contains markup."""


_TILE_DIGITS = 8
_MOST_COLUMNS = 100


def page(report: StoreReport) -> str:
    """The whole page."""
    body = [
        f"<header><h1>{escape(report.path)}</h1>"
        f'<p class="soft">Layout {report.layout} · read at {moment(report.made_at)}</p></header>',
        _tiles(report),
        _problems(report),
        *(_topic(topic, report.lags) for topic in report.topics),
        f"<footer>Written by cursus {__version__}. Bytes are the "
        "sizes of the log files. Point at a block or a bar to see its numbers.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        f"<title>{escape(report.path)} · cursus report</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def _tiles(report: StoreReport) -> str:
    facts = [topic.facts for topic in report.topics]
    tiles = [
        ("", number(len(facts)), "topics"),
        ("", number(sum(topic.count for topic in facts)), "partitions"),
        ("", number(sum(topic.records for topic in facts)), "records"),
        ("", size(sum(topic.size for topic in facts)), "log files"),
        ("", number(sum(topic.segments for topic in facts)), "segments"),
    ]
    if report.lags:
        most = max(lag.lag for lag in report.lags)
        tiles.append(("warn" if most else "good", number(most), "largest lag"))
    if report.problems is not None:
        errors = sum(problem.severity == "error" for problem in report.problems)
        kind = "bad" if errors else "warn" if report.problems else "good"
        tiles.append((kind, number(len(report.problems)), "problems"))
    shown = "".join(
        f'<div class="tile {kind}"><b{_fitted(value)}>{_kept(value)}</b><span>{label}</span></div>'
        for kind, value, label in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _kept(value: str) -> str:
    """A number and its unit in one line."""
    return value.replace(" ", "&nbsp;")


def _fitted(value: str) -> str:
    """A smaller font for a number that is wider than its tile."""
    return ' class="long"' if len(value) > _TILE_DIGITS else ""


def _problems(report: StoreReport) -> str:
    if report.problems is None:
        return _card("Problems", '<p class="soft">The store was not checked (--no-check).</p>')
    if not report.problems:
        fine = '<span class="tag fine">none</span> Every byte was read; all checksums match.'
        if LAYOUTS[report.layout].scrub != "checksums":
            fine = '<span class="tag fine">none</span> Every record was read. This layout has no '
            fine += "checksums, so changed bytes inside a value cannot be found."
        return _card("Problems", f"<p>{fine}</p>")
    rows = [
        [
            f'<span class="tag {problem.severity}">{problem.severity}</span>',
            escape(problem.code),
            escape(problem.message),
        ]
        for problem in report.problems
    ]
    return _card("Problems", _table(["", "code", "*problem"], rows))


def _topic(topic: TopicReport, lags: Sequence[Lag]) -> str:
    facts = topic.facts
    if facts.problem is not None:
        tag = f'<span class="tag error">{escape(facts.problem.code)}</span>'
        return _card(escape(facts.name), f"<p>{tag} {escape(str(facts.problem))}</p>")
    kind = "" if facts.file is None else f"{facts.file.kind} topic · "
    summary = f"{kind}{plural(facts.count, 'partition')} · {plural(facts.records, 'record')} · "
    parts = [
        f'<div class="head"><h2>{escape(facts.name)}</h2>'
        f'<span class="soft">{summary}{size(facts.size)}</span></div>'
    ]
    if facts.settings:
        settings = escape(settings_text(facts.settings))
        parts.append(f'<p class="soft">Settings: {settings}</p>')
    parts += _schema(facts)
    late = out_of_order(facts.partitions)
    if late is not None:
        parts.append(
            f'<p><span class="tag warning">times out of order</span> in {late}: later records have '
            "earlier timestamps. Read by time with timestampMode=exact.</p>"
        )
    parts += [_segments(facts.partitions), _rates(topic.flow), _insides(topic)]
    parts.append(f"<h3>Partitions</h3>{_partitions(facts.partitions)}")
    of_topic = [lag for lag in lags if lag.topic == facts.name]
    if of_topic:
        parts.append(f"<h3>Consumer groups</h3>{_lags(of_topic)}")
    return f'<section class="card">{"".join(parts)}</section>'


def _schema(facts: TopicFacts) -> list[str]:
    if facts.file is None or not facts.schemas:
        return []
    schema, origin, created_at = facts.schemas[-1]
    keys, timestamp = facts.file.key_columns, facts.file.timestamp_column
    rows = [
        [
            escape(field.name),
            escape(type_ddl(field)),
            "" if field.nullable else "not null",
            ", ".join(["key"] * (field.name in keys) + ["timestamp"] * (field.name == timestamp)),
        ]
        for field in schema.fields[:_MOST_COLUMNS]
    ]
    rest = len(schema.fields) - len(rows)
    more = f'<p class="soft">and {plural(rest, "column")} more</p>' if rest > 0 else ""
    versions = plural(len(facts.schemas), "version")
    return [
        f"<h3>Schema</h3>"
        f'<p class="soft">version {schema.version} by {origin} at {escape(created_at)}; '
        f"{versions}</p>{_table(['column', '*type', '', ''], rows)}{more}"
    ]


def _segments(partitions: Sequence[PartitionFacts]) -> str:
    axis = axis_of(partitions)
    if axis is None:
        return '<p class="soft">No records yet.</p>'
    over = "time" if axis.timed else "offsets (this layout stores no timestamps)"
    rest = len(partitions) - MOST_ROWS
    more = f'<p class="soft">and {plural(rest, "partition")} more</p>' if rest > 0 else ""
    key = (
        '<span class="key" style="background:var(--blue)"></span>sealed'
        '<span class="key" style="background:var(--teal)"></span>active'
    )
    around = '<div class="scroll" tabindex="0" role="group" aria-label="segments">'
    return f"<h3>Segments over {over} {key}</h3>{around}{timeline(partitions, axis)}</div>{more}"


def _rates(flow: Flow | None) -> str:
    if flow is None:
        return ""
    if flow.low == flow.high:
        return f'<p class="soft">All records have the same timestamp, {moment(flow.low)}.</p>'
    low, high = moment(flow.low), moment(flow.high)
    seconds = flow.bin_seconds
    starts = [flow.low + round(place * seconds * 1e6) for place in range(len(flow.records))]
    charts = []
    for values, kind, name in (
        (flow.records, "records", "records"),
        (flow.stored, "stored", "bytes"),
    ):
        rates = [value / seconds for value in values]
        bars = [
            Bar(rate, f"from {moment(start)}: {_rate(rate, name)}")
            for start, rate in zip(starts, rates, strict=True)
        ]
        mean, peak = _rate(sum(values) / seconds / len(values), name), _rate(max(rates), name)
        charts.append(
            f"<div><h3>{name} per second</h3>"
            f'<p class="soft">mean {mean}; one bar for each {duration(seconds * 1e6)}</p>'
            f"{columns(bars, low, high, peak, f'{name} per second', kind)}</div>"
        )
    return f'<div class="two">{"".join(charts)}</div>'


def _rate(value: float, name: str) -> str:
    if name == "bytes":
        return f"{size(value)}/s"
    return f"{value:,.0f}/s" if value >= 10 else f"{value:.2g}/s"


def _insides(topic: TopicReport) -> str:
    parts = [
        _sizes(topic.sizes, topic.facts.records),
        _compression(topic.compression, topic.facts.size),
    ]
    return f'<div class="two">{"".join(part for part in parts if part)}</div>'


def _sizes(sizes: Sizes | None, records: int) -> str:
    if sizes is None:
        return ""
    first = next(place for place, count in enumerate(sizes.counts) if count)
    counts = sizes.counts[first:]
    bars = [
        Bar(
            count,
            f"{size(2 ** (power - 1) if power else 0)} to {size(2**power)}: "
            f"{plural(count, 'record')}",
        )
        for power, count in enumerate(counts, first)
    ]
    low = size(2 ** (first - 1) if first else 0)
    high = size(2 ** (len(sizes.counts) - 1))
    most = plural(max(counts), "record")
    chart = columns(bars, low, high, most, "Records by size", "sizes")
    part = f" of {number(sizes.measured)} measured records" if sizes.measured < records else ""
    return (
        f"<div><h3>Record sizes</h3>"
        f'<p class="soft">{size(sizes.smallest)} to {size(sizes.largest)}, median '
        f"{size(sizes.median)}{part}; each bar covers twice the size of the bar before</p>"
        f"{chart}</div>"
    )


def _compression(found: Compression | None, log_bytes: int) -> str:
    if found is None or not found.raw:
        return ""
    codecs = ", ".join(
        f"{'uncompressed' if name == 'none' else name}: {plural(count, 'frame')}"
        for name, count in found.codecs
    )
    ratio = found.raw / max(1, found.stored)
    rows = [
        ["before compression", size(found.raw), share_bar(1, "before compression")],
        ["as stored", size(found.stored), share_bar(found.stored / found.raw, "as stored")],
        ["log files", size(log_bytes), share_bar(log_bytes / found.raw, "log files")],
    ]
    return (
        f"<div><h3>Compression</h3>"
        f'<p class="soft">ratio {ratio:.2f}; {escape(codecs)}</p>'
        f"{_table(['', '>bytes', ''], rows)}</div>"
    )


def _partitions(partitions: Sequence[PartitionFacts]) -> str:
    most = max((partition.size for partition in partitions), default=0) or 1
    rows = [
        [
            str(partition.partition),
            number(partition.start),
            number(partition.end),
            number(len(partition.segments)),
            size(partition.size),
            share_bar(partition.size / most, f"{partition.size / most:.0%} of the largest"),
            '<span class="tag warning">recovery due</span>' if partition.recovery_due else "clean",
        ]
        for partition in partitions
    ]
    heads = [">partition", ">start", ">end", ">segments", ">size", "", "state"]
    return _table(heads, rows)


def _lags(lags: Sequence[Lag]) -> str:
    most = max(lag.lag for lag in lags) or 1
    rows = [
        [
            escape(lag.group),
            str(lag.partition),
            number(lag.committed),
            number(lag.end),
            number(lag.lag),
            share_bar(lag.lag / most, f"lag {lag.lag}"),
        ]
        for lag in lags
    ]
    return _table(["group", ">partition", ">committed", ">end", ">lag", ""], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML. A heading that starts with > aligns right; with * its cells may wrap."""
    kinds = [{">": ' class="n"', "*": ' class="wide"'}.get(head[:1], "") for head in heads]
    names = [head.lstrip(">*") for head in heads]
    top = "".join(
        f"<th{'' if 'wide' in kind else kind}>{name}</th>"
        for kind, name in zip(kinds, names, strict=True)
    )
    lines = ""
    for row in rows:
        cells = [f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)]
        lines += f"<tr>{''.join(cells)}</tr>"
    # What scrolls takes the focus, so that the keyboard can scroll it.
    around = '<div class="scroll" tabindex="0" role="group" aria-label="table">'
    return f"{around}<table><tr>{top}</tr>{lines}</table></div>"


def _card(title: str, content: str) -> str:
    return f'<section class="card"><h2>{title}</h2>{content}</section>'
