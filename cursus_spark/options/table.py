"""Every option of the connector in one table: how it is parsed, its default, what it does.

The dataclasses in ``options`` are filled from this table, and the documentation is printed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from storage_core import CODECS, LAYOUT_NAMES

from . import values as parse

Use = Literal["read", "stream read", "write", "stream write"]

_READ: tuple[Use, ...] = ("read", "stream read")
_WRITE: tuple[Use, ...] = ("write", "stream write")
_STREAM_READ: tuple[Use, ...] = ("stream read",)
_ALL: tuple[Use, ...] = (*_READ, *_WRITE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: As users write it; Spark hands it over in lower case.
        uses: Where it means something. Elsewhere it is ignored with a warning.
        parse: From its text to its value.
        default: What is taken when it is not given, in words for the documentation.
        doc: What it does, in one line.
    """

    name: str
    uses: tuple[Use, ...]
    parse: parse.Parser
    default: str
    doc: str


ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
PARTITIONERS = ("murmur2",)
STRATEGIES = ("error", "latest")

OPTIONS: tuple[Option, ...] = (
    Option(
        "path",
        _ALL,
        parse.directory,
        "required",
        "The directory of the log, as a path or file: URI. The driver makes it absolute.",
    ),
    Option(
        "layout",
        _ALL,
        parse.choice(*LAYOUT_NAMES),
        "auto",
        "The layout of the directory: auto recognises it, and makes a new one native.",
    ),
    Option(
        "topic",
        _ALL,
        parse.raw,
        "column topic",
        "Writing: the topic for all rows; wins over the column. Reading: the same as subscribe.",
    ),
    Option(
        "subscribe",
        _READ,
        parse.topic_list,
        "one of the three is required",
        "Topics to read, separated by commas.",
    ),
    Option(
        "subscribePattern",
        _READ,
        parse.topic_pattern,
        "one of the three is required",
        "A regular expression that matches the whole names of the topics to read.",
    ),
    Option(
        "assign",
        _READ,
        parse.topic_partitions,
        "one of the three is required",
        'Single partitions to read, as JSON: {"topicA":[0,1]}.',
    ),
    Option(
        "startingOffsets",
        _READ,
        parse.raw,
        "earliest (stream: latest)",
        "Where to start: earliest, latest, group (stream), or JSON; -2 earliest, -1 latest. "
        "What the JSON does not name takes the default: in a stream latest.",
    ),
    Option(
        "startingTimestamp",
        _READ,
        parse.raw,
        "none",
        "Start at the first record not older than this; milliseconds or ISO-8601. Wins over all.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        _READ,
        parse.raw,
        "none",
        "The same for single partitions, as JSON. Wins over startingOffsets.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        _READ,
        parse.choice(*STRATEGIES),
        "error",
        "What to do when no record is that young: error, or latest to start at the end.",
    ),
    Option(
        "endingOffsets",
        ("read",),
        parse.raw,
        "latest",
        "Where a batch ends, exclusive: latest, or JSON; -1 latest.",
    ),
    Option(
        "endingTimestamp",
        ("read",),
        parse.raw,
        "none",
        "End a batch before the first record not older than this. Wins over all.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        ("read",),
        parse.raw,
        "none",
        "The same for single partitions, as JSON. Wins over endingOffsets.",
    ),
    Option(
        "failOnDataLoss",
        _READ,
        parse.boolean,
        "true",
        "Fail when records are gone or a topic was made anew; false: warn and go on.",
    ),
    Option(
        "isolation",
        _READ,
        parse.choice(*ISOLATION_LEVELS),
        "read_committed",
        "In a cursus broker's directory: read_uncommitted also reads open, aborted transactions.",
    ),
    Option(
        "includeHeaders",
        _READ,
        parse.boolean,
        "false",
        "Whether to add the column headers; naming it in .schema(...) does so too.",
    ),
    Option(
        "minPartitions",
        _READ,
        parse.positive_int,
        "none",
        "Cut the work into at least so many tasks, if there are records enough.",
    ),
    Option(
        "maxRecordsPerPartition",
        _READ,
        parse.positive_long,
        "none",
        "The most records of one task.",
    ),
    Option(
        "maxBytesPerPartition",
        _READ,
        parse.byte_size,
        "128m",
        "About the most bytes of one task; small ranges share a task.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        _STREAM_READ,
        parse.positive_long,
        "none",
        "The most records of a micro-batch, shared out by backlog.",
    ),
    Option(
        "maxBytesPerTrigger",
        _STREAM_READ,
        parse.byte_size,
        "none",
        "About the most bytes of a micro-batch.",
    ),
    Option(
        "minOffsetsPerTrigger",
        _STREAM_READ,
        parse.positive_long,
        "none",
        "Wait until so many records are there, or until maxTriggerDelay has passed.",
    ),
    Option(
        "maxTriggerDelay",
        _STREAM_READ,
        parse.duration_ms,
        "15m",
        "The longest wait for minOffsetsPerTrigger.",
    ),
    Option(
        "consumerGroup",
        _STREAM_READ,
        parse.name_text,
        "none",
        "Record the committed positions in the store under this name, for lag tools.",
    ),
    Option(
        "partitioner",
        _WRITE,
        parse.choice(*PARTITIONERS),
        "murmur2",
        "How a key chooses its partition: murmur2, as Kafka. Without a key: the task's own.",
    ),
    Option(
        "createTopic",
        _WRITE,
        parse.boolean,
        "true",
        "Whether to make a missing topic, and a missing store.",
    ),
    Option(
        "numPartitions",
        _WRITE,
        parse.positive_int,
        "1",
        "Partitions of a new topic; an existing one must have as many, if given.",
    ),
    Option(
        "compression",
        _WRITE,
        parse.choice(*CODECS),
        "the topic's",
        "Codec of the records written: none, lz4 or zstd.",
    ),
    Option(
        "txnAppId",
        _WRITE,
        parse.name_text,
        "none (stream: the query's id)",
        "Makes a write idempotent, with txnVersion; in a stream it replaces the query's id.",
    ),
    Option(
        "txnVersion",
        ("write",),
        parse.version,
        "none",
        "A write whose version is not above the recorded one is skipped.",
    ),
)

BY_LOWER_NAME: Mapping[str, Option] = {option.name.lower(): option for option in OPTIONS}


def options_for(use: Use) -> list[Option]:
    """The options that mean something in one use, in the order of the table."""
    return [option for option in OPTIONS if use in option.uses]
