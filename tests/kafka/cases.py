"""Log directories of every kind that a broker makes, each by the clients that lead to it.

A case produces small topics. Its directory is then copied as it stands: while the broker runs,
after it stopped, or after it was killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from confluent_kafka import admin
from py4j.java_gateway import JavaGateway

from tests.kafka.client import Client, Headers, JavaProducer, wait_until

START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOISE = bytes(range(200))


class Sent(NamedTuple):
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class World:
    """A case while it is made: the broker, which may be killed and started again, and clients."""

    def __init__(
        self, start: Callable[[], tuple[str, int]], stop: Callable[[], None], data: Path
    ) -> None:
        self._start, self._stop = start, stop
        self.data = data
        self.java: JavaGateway | None = None
        self.process = 0
        self.open: list[Any] = []  # producers whose transactions stay open
        self.start()

    def start(self) -> None:
        address, self.process = self._start()
        self.client = Client(address)

    def stop(self) -> None:
        self._stop()

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        self._stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def java_producer(self, **settings: object) -> JavaProducer:
        assert self.java is not None
        return JavaProducer(self.java, self.client.address, **settings)


@dataclass(frozen=True)
class Case:
    """One kind of directory.

    Attributes:
        name: Its directory.
        what: What is in it.
        make: Produces the records.
        settings: Of the broker.
        taken: When the directory is copied.
        needs_java: Whether Kafka's own clients are called.
    """

    name: str
    what: str
    make: Callable[[World], None]
    settings: Mapping[str, object] = field(default_factory=dict)
    taken: Literal["running", "stopped", "killed"] = "stopped"
    needs_java: bool = False


def records(count: int, first: int = 0) -> list[Sent]:
    """Records of every shape: null, empty, short and long keys, values and headers."""
    keys = [b"key-%d" % first, None, b"", b"k" * 200]
    values = [b"value", None, b"", NOISE, b"v" * 70, bytes([0, 255, 10])]
    headers: list[Headers] = [
        (),
        [("source", b"web")],
        [("source", b"web"), ("source", b""), ("none", None)],
        [("", b"no name"), ("größe", NOISE[:130])],
    ]
    return [
        Sent(
            keys[at % 4],
            values[at % 6],
            START_MS + 1000 * at - 400 * (at % 3),
            headers[at % 5 % 4],
        )
        for at in range(first, first + count)
    ]


def send(producer: Any, topic: str, sent: Iterable[Sent], partition: int = 0) -> None:
    """One batch of records, and the acknowledgement of it."""
    outcomes: list[object] = []
    for it in sent:
        producer.produce(
            topic,
            it.value,
            key=it.key,
            partition=partition,
            timestamp=it.timestamp,
            headers=list(it.headers),
            on_delivery=lambda error, _: outcomes.append(error),
        )
    producer.flush()
    assert outcomes
    assert not any(outcomes), f"not every record was stored: {outcomes}"


def keyed(keys: Iterable[int], first: int) -> list[Sent]:
    return [
        Sent(b"key-%d" % key, b"%d of %d " % (first + at, key) * 3, START_MS + 10 * (first + at))
        for at, key in enumerate(keys)
    ]


def batches(producer: Any, topic: str, count: int, size: int = 4, partition: int = 0) -> None:
    for number in range(count):
        send(producer, topic, records(size, number * size), partition)


def _codecs(world: World) -> None:
    """Each codec as librdkafka, Kafka's own producer and the broker itself compress."""
    for codec in CODECS:
        client = world.client
        client.create_topic(f"{codec}-librdkafka")
        producer = client.producer(compression_type=codec, enable_idempotence=codec == "zstd")
        batches(producer, f"{codec}-librdkafka", 3, 6)
        client.create_topic(f"{codec}-java")
        java = world.java_producer(compression_type=codec, enable_idempotence=codec != "gzip")
        batches(java, f"{codec}-java", 3, 6)
        java.close()
        if codec != "none":
            client.create_topic(f"{codec}-broker", compression_type=codec)
            batches(client.producer(), f"{codec}-broker", 3, 6)


def _times(world: World) -> None:
    """Create time and append time, a change between them, and timestamps of all sizes."""
    client = world.client
    producer = client.producer()
    client.create_topic("append-time", message_timestamp_type="LogAppendTime")
    batches(producer, "append-time", 4)
    client.create_topic("append-time-zstd", message_timestamp_type="LogAppendTime")
    batches(client.producer(compression_type="zstd"), "append-time-zstd", 2)
    client.create_topic("unordered", index_interval_bytes=0)
    java = world.java_producer()
    for times in ([5, 3, 9, 1], [2, 2, 2], [0, 2**40, 7], [8, 8 + 2**33, 8 - 8]):
        send(java, "unordered", [Sent(None, b"%d" % it, it) for it in times])
    java.close()


def _segments(world: World) -> None:
    """Several partitions and segments, rolled by size, by a full index and by time."""
    client = world.client
    producer = client.producer()
    client.create_topic("orders", 3, internal_segment_bytes=2000, index_interval_bytes=500)
    for partition in range(3):
        batches(producer, "orders", 2 + 4 * partition, 4, partition)
    client.create_topic("web.clicks-2024-7", segment_index_bytes=60, index_interval_bytes=0)
    batches(client.producer(compression_type="lz4"), "web.clicks-2024-7", 12, 3)
    client.create_topic("by_time", segment_ms=2500)
    batches(producer, "by_time", 4, 2)
    client.create_topic("large-batch", index_interval_bytes=100)
    large = [Sent(b"k%d" % at, NOISE * 3, START_MS + at) for at in range(12)]
    send(client.producer(compression_type="gzip"), "large-batch", large)
    send(producer, "large-batch", large)
    client.create_topic("empty", 2)
    client.commit_offsets("billing", {("orders", 1): 5, ("orders", 2): 17})


def _transactions(world: World) -> None:
    """Committed, aborted and open transactions of several producers, between other records."""
    client = world.client
    client.create_topic("payments", 2, internal_segment_bytes=1500, index_interval_bytes=200)
    client.create_topic("only-aborted")
    plain = client.producer(compression_type="snappy")
    first, second = (client.producer(transactional_id=f"app-{it}") for it in "ab")
    for producer in (first, second):
        producer.init_transactions()
    at = 0
    for number in range(6):
        first.begin_transaction()
        second.begin_transaction()
        for producer in (first, plain, second, first):
            at += 2
            send(producer, "payments", records(2, at), at // 2 % 2)
        (first.abort_transaction if number % 3 == 1 else first.commit_transaction)()
        send(plain, "payments", records(1, at), 1)
        (second.abort_transaction if number % 2 else second.commit_transaction)()
    first.begin_transaction()
    send(first, "only-aborted", records(3))
    first.abort_transaction()
    java = world.java_producer(transactional_id="java", compression_type="gzip")
    java.initTransactions()
    for number in range(4):
        java.beginTransaction()
        send(java, "payments", records(3, at + 3 * number))
        (java.abortTransaction if number % 2 else java.commitTransaction)()
    _leave_open(world, second, at)
    send(plain, "payments", records(4, at))
    send(plain, "payments", records(2, at), 1)
    first.begin_transaction()
    send(first, "payments", records(3, at))
    first.abort_transaction()
    world.open.append(java)


def _leave_open(world: World, producer: Any, at: int) -> None:
    producer.begin_transaction()
    send(producer, "payments", records(2, at))
    world.open.append(producer)
    fenced = world.client.producer(transactional_id="zombie")
    fenced.init_transactions()
    fenced.begin_transaction()
    send(fenced, "payments", records(2, at), 1)
    world.client.producer(transactional_id="zombie").init_transactions()  # aborts what was open
    world.open.append(fenced)


def _compaction(world: World) -> None:
    """Holes in batches of every codec, tombstones, empty batches, compacted transactions."""
    client = world.client
    settings: dict[str, Any] = {
        "cleanup_policy": "compact",
        "internal_segment_bytes": 900,
        "min_cleanable_dirty_ratio": 0.001,
        "index_interval_bytes": 100,
    }
    codecs = {"compacted": "none", "compacted-zstd": "zstd", "compacted-snappy": "snappy"}
    for topic, codec in codecs.items():
        client.create_topic(topic, **settings)
        producer = client.producer(compression_type=codec, enable_idempotence=True)
        for number in range(8):
            send(producer, topic, keyed([number, 1, 2, 20 + number % 3, 1], 5 * number))
    client.create_topic("tombstones", **settings, delete_retention_ms=0)
    producer = client.producer()
    for number in range(8):
        gone = Sent(b"key-%d" % (number - 1), None, START_MS + number)
        send(producer, "tombstones", [*keyed([number, number, 50], 2 * number), gone])
    client.create_topic("compacted-transactions", **settings, delete_retention_ms=0)
    java = world.java_producer(transactional_id="java")
    java.initTransactions()
    for number in range(12):
        java.beginTransaction()
        send(java, "compacted-transactions", keyed([1, number, 2, number % 3], 4 * number))
        (java.abortTransaction if number % 3 == 1 else java.commitTransaction)()
    java.close()
    _wait_for_the_cleaner(world, [*codecs, "tombstones", "compacted-transactions"])


def _wait_for_the_cleaner(world: World, topics: list[str]) -> None:
    """Until consumers get fewer records than offsets, and the same number for a while."""

    def counts() -> list[int]:
        return [len(world.client.consume(it, 0, "read_uncommitted")["records"]) for it in topics]

    before: list[int] = []
    same_since = time.monotonic()

    def is_cleaned() -> bool:
        nonlocal before, same_since
        now = counts()
        if now != before:
            before, same_since = now, time.monotonic()
        return time.monotonic() - same_since > 3

    wait_until(is_cleaned, "the cleaner")


def _retention(world: World) -> None:
    """Deleted segments and records, the files of both still there, and a deleted topic."""
    client = world.client
    producer = client.producer()
    client.create_topic("expired", internal_segment_bytes=1500)
    batches(producer, "expired", 6)
    now = int(time.time() * 1000)
    later = [it._replace(timestamp=now + at) for at, it in enumerate(records(12, 24))]
    for at in range(0, 12, 4):
        send(producer, "expired", later[at : at + 4])
    _alter(client, "expired", "retention.ms", "3600000")
    client.create_topic("trimmed", 2, internal_segment_bytes=1500)
    for partition in range(2):
        batches(producer, "trimmed", 6, 4, partition)
    client.delete_records("trimmed", 0, 10)
    client.delete_records("trimmed", 1, 24)
    client.create_topic("gone", 2)
    batches(producer, "gone", 2)
    client.delete_topic("gone")
    wait_until(
        lambda: client.consume("expired", 0, "read_uncommitted")["start"] > 0, "the retention"
    )
    wait_until(lambda: any(world.data.glob("gone*-delete")), "the deleted topic")


def _alter(client: Client, topic: str, name: str, value: str) -> None:
    entry = admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
    resource = admin.ConfigResource(
        admin.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
    )
    for done in client.admin.incremental_alter_configs([resource]).values():
        done.result(30)


def _killed(world: World) -> None:
    """A broker that is killed while it serves, with preallocated files, after several epochs."""
    client = world.client
    client.create_topic("orders", 2, preallocate="true", internal_segment_bytes=4000)
    client.create_topic("index", index_interval_bytes=0)
    for _ in range(3):
        producer = world.client.producer(compression_type="lz4")
        batches(producer, "orders", 3, 6)
        batches(world.client.producer(), "orders", 3, 6, 1)
        batches(producer, "index", 4, 2)
        time.sleep(1)
        world.kill()
        world.start()
    batches(world.client.producer(), "orders", 2, 6)
    producer = world.client.producer(transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, "index", records(3))
    producer.abort_transaction()
    producer.begin_transaction()
    send(producer, "index", records(2))
    world.open.append(producer)


def _lagging(world: World) -> None:
    """A running broker with an old high watermark file."""
    client = world.client
    client.create_topic("orders", internal_segment_bytes=3000)
    batches(client.producer(), "orders", 4)
    world.restart()
    producer = world.client.producer(compression_type="zstd")
    world.client.create_topic("new")
    for number in range(4, 9):
        send(producer, "orders", records(4, 4 * number))
        send(producer, "new", records(2, number))


_SMALL_INDEX = {"log.index.size.max.bytes": 4096}
_NO_DELETION = {"log.segment.delete.delay.ms": 600_000}
CASES = (
    Case(
        "codecs", "Every codec, by librdkafka, by Java and by the broker.", _codecs, needs_java=True
    ),
    Case("times", "Create time and append time.", _times, needs_java=True),
    Case("segments", "Partitions and segments, and offsets of a consumer group.", _segments),
    Case(
        "transactions",
        "Committed, aborted and open transactions, taken from a running broker.",
        _transactions,
        taken="running",
        needs_java=True,
    ),
    Case(
        "compaction",
        "Compacted topics with holes.",
        _compaction,
        {"log.cleaner.backoff.ms": 100, **_NO_DELETION},
        needs_java=True,
    ),
    Case(
        "retention",
        "Deleted segments and records, whose files are still there.",
        _retention,
        {
            "log.retention.check.interval.ms": 300,
            "log.initial.task.delay.ms": 300,
            **_NO_DELETION,
        },
        taken="running",
    ),
    Case("killed", "A killed broker, with preallocated files.", _killed, taken="killed"),
    Case(
        "lagging",
        "A running broker with an old high watermark file.",
        _lagging,
        {"replica.high.watermark.checkpoint.interval.ms": 3_600_000},
        taken="running",
    ),
)
