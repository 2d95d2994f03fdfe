"""Every option of the connector in one table: how it is parsed, its default, what it does.

``parse.py`` reads the options of a query by this table; a test compares ``docs/connector.md`` with
it.
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
        name: As users write it. Spark passes it in lower case.
        uses: The queries that have this option. Others ignore it and log a warning.
        parse: Makes the value from the text.
        default: The value if the option is not given, as the documentation shows it.
        doc: What the option does.
    """

    name: str
    uses: tuple[Use, ...]
    parse: parse.Parser
    default: str
    doc: str


ISOLATION_LEVELS = ("read_committed", "read_uncommitted", "log_end")
PARTITIONERS = ("murmur2",)
STRATEGIES = ("error", "latest")
TIMESTAMP_MODES = ("exact", "offsets")
EVOLUTION_MODES = ("ignore", "fail")

OPTIONS: tuple[Option, ...] = (
    Option(
        "path",
        _ALL,
        parse.directory,
        "required",
        "Directory of the log, as a path or file: URI, or an object store such as "
        "s3://bucket/log. The driver makes a path absolute.",
    ),
    Option(
        "layout",
        _ALL,
        parse.choice(*LAYOUT_NAMES),
        "auto",
        "Layout of the directory. auto detects it; a new directory becomes native.",
    ),
    Option(
        "topic",
        _ALL,
        parse.raw,
        "column topic",
        "Write: the topic of all rows; takes precedence over the column. Read: the same as "
        "subscribe.",
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
        "Regular expression of Python that matches the full names of the topics to read.",
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
        "Where to start: earliest, latest, group (stream only), or JSON; in JSON -2 is "
        "earliest, -1 is latest. The JSON of a stream names every partition, or has a default for "
        'a topic: {"t":{"0":5,"*":"earliest"}}. In a batch the others start at earliest.',
    ),
    Option(
        "startingTimestamp",
        _READ,
        parse.raw,
        "none",
        "Start at the first record at or after this time: milliseconds or ISO-8601. Takes "
        "precedence over all other start options.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        _READ,
        parse.raw,
        "none",
        "The same for single partitions, as JSON. Takes precedence over startingOffsets.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        _READ,
        parse.choice(*STRATEGIES),
        "error",
        "If no record is at or after the timestamp: error fails, latest starts at the end.",
    ),
    Option(
        "endingOffsets",
        ("read",),
        parse.raw,
        "latest",
        "Where a batch ends, exclusive: latest, or JSON; in JSON -1 is latest.",
    ),
    Option(
        "endingTimestamp",
        ("read",),
        parse.raw,
        "none",
        "Read the records of a batch that are older than this time; 9223372036854775807 reads to "
        "the end. Takes precedence over all other end options.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        ("read",),
        parse.raw,
        "none",
        "The same for single partitions, as JSON. Takes precedence over endingOffsets.",
    ),
    Option(
        "timestampMode",
        _READ,
        parse.choice(*TIMESTAMP_MODES),
        "exact (stream: offsets)",
        "A batch by time: exact reads the records of the interval whatever their order; offsets "
        "reads from the first record of one time to that of the other, as Kafka and streams do.",
    ),
    Option(
        "failOnDataLoss",
        _READ,
        parse.boolean,
        "true",
        "true: fail if records are gone, or a topic was deleted and created again. false: log a"
        " warning and continue.",
    ),
    Option(
        "isolation",
        _READ,
        parse.choice(*ISOLATION_LEVELS),
        "read_committed",
        "For the directory of a cursus or Kafka broker: read_uncommitted also reads records of "
        "open and aborted transactions, and in a cursus broker's those above its `.hwm`. log_end "
        "also reads what is above Kafka's high watermark.",
    ),
    Option(
        "includeHeaders",
        _READ,
        parse.boolean,
        "false",
        "Add the column headers. To name it in .schema(...) does the same.",
    ),
    Option(
        "includeMetadata",
        _READ,
        parse.boolean,
        "false",
        "Typed topics: add the columns _topic, _partition, _offset and _timestamp. To name them in "
        ".schema(...) does the same.",
    ),
    Option(
        "mergeSchema",
        _ALL,
        parse.boolean,
        "false",
        "Typed topics. Read: several topics with different columns give all of them, null where a "
        "topic does not have one. Write: add the columns that the topic does not have, in the "
        "commit of the rows.",
    ),
    Option(
        "mergeSchema.typeWidening",
        _WRITE,
        parse.boolean,
        "false",
        "Typed topics: also widen columns to the type of the rows: int to bigint, float to double, "
        "decimals with more digits. Needs mergeSchema.",
    ),
    Option(
        "where",
        _READ,
        parse.raw,
        "none",
        "Read only rows that match a predicate in Spark's SQL, such as amount > 100 AND day >= "
        "'2026-11-01'. Segments and frames that cannot match are not read. See below.",
    ),
    Option(
        "schemaEvolutionMode",
        _STREAM_READ,
        parse.choice(*EVOLUTION_MODES),
        "ignore",
        "Typed topics: what a running stream does about columns that are added, or widened, after "
        "its start. ignore leaves them out with a warning; fail ends the query. A restart reads "
        "them.",
    ),
    Option(
        "minPartitions",
        _READ,
        parse.positive_int,
        "none",
        "Minimum number of tasks, if there are as many records.",
    ),
    Option(
        "maxRecordsPerPartition",
        _READ,
        parse.positive_long,
        "none",
        "Maximum number of records per task.",
    ),
    Option(
        "maxBytesPerPartition",
        _READ,
        parse.byte_size,
        "128m",
        "Approximate maximum of bytes per task. Small ranges share a task.",
    ),
    Option(
        "cacheDir",
        _READ,
        parse.absolute_directory,
        "none",
        "Stores of objects: keep records that were read in this directory of each node, so that "
        "the next read does not fetch them again.",
    ),
    Option(
        "cacheBytes",
        _READ,
        parse.byte_size,
        "1g",
        "Maximum size of cacheDir on a node, at least 16m. What was read first is removed first.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        _STREAM_READ,
        parse.positive_long,
        "none",
        "Maximum number of records per micro-batch, shared by the partitions in proportion to "
        "their lag.",
    ),
    Option(
        "maxBytesPerTrigger",
        _STREAM_READ,
        parse.byte_size,
        "none",
        "Approximate maximum of bytes per micro-batch.",
    ),
    Option(
        "minOffsetsPerTrigger",
        _STREAM_READ,
        parse.positive_long,
        "none",
        "Wait until this number of records is available, or until maxTriggerDelay has passed.",
    ),
    Option(
        "maxTriggerDelay",
        _STREAM_READ,
        parse.duration_ms,
        "15m",
        "Longest wait for minOffsetsPerTrigger.",
    ),
    Option(
        "inlineBatchBytes",
        _STREAM_READ,
        parse.byte_limit,
        "1m",
        "A micro-batch of at most this many bytes, and at most 10,000 records, is read where it is "
        "planned, so that no task starts a Python worker. 0: tasks read every batch.",
    ),
    Option(
        "consumerGroup",
        _STREAM_READ,
        parse.name_text,
        "none",
        "Save the committed positions in the store under this group name, for lag tools.",
    ),
    Option(
        "partitioner",
        _WRITE,
        parse.choice(*PARTITIONERS),
        "murmur2",
        "How a key selects its partition: murmur2, as in Kafka. Rows without a key go to one "
        "partition per task.",
    ),
    Option(
        "createTopic",
        _WRITE,
        parse.boolean,
        "true",
        "true: create a missing topic, and a missing store. false: a missing one is an error.",
    ),
    Option(
        "numPartitions",
        _WRITE,
        parse.positive_int,
        "1",
        "Number of partitions of a new topic. If given, an existing topic must have this number.",
    ),
    Option(
        "typed",
        _WRITE,
        parse.boolean,
        "as the rows are",
        "Kind of a new topic. true: typed, with the columns of the rows. false: records, with key "
        "and value. If given, an existing topic must be of this kind.",
    ),
    Option(
        "keyColumns",
        _WRITE,
        parse.column_names,
        "none",
        "Typed topics: columns whose values choose the partition of a row, separated by commas; "
        "`in backticks` if a name has a comma. A new topic keeps them for good; an existing topic "
        "must have these.",
    ),
    Option(
        "timestampColumn",
        _WRITE,
        parse.column_name,
        "none",
        "Typed topics: the column whose values are the times of the records. A new topic keeps it "
        "for good; an existing topic must have this one.",
    ),
    Option(
        "compression",
        _WRITE,
        parse.choice(*CODECS),
        "the topic's",
        "Codec of the written records: none, lz4 or zstd.",
    ),
    Option(
        "txnAppId",
        _WRITE,
        parse.name_text,
        "none (stream: the query's id)",
        "Makes a write idempotent, together with txnVersion. In a stream it replaces the "
        "query's id.",
    ),
    Option(
        "txnVersion",
        ("write",),
        parse.version,
        "none",
        "A write is skipped if its version is not above the last committed one.",
    ),
    Option(
        "txnMode",
        ("write",),
        parse.choice("last", "exact"),
        "last",
        "exact: skip a write only if its very version was committed, so that older ones can "
        "follow.",
    ),
)

BY_LOWER_NAME: Mapping[str, Option] = {option.name.lower(): option for option in OPTIONS}


def options_for(*uses: Use) -> list[Option]:
    """The options of some uses, in the order of the table."""
    return [option for option in OPTIONS if set(uses) & set(option.uses)]
