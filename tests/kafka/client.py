"""Clients of a real broker: librdkafka's, and Kafka's own in Java for what only it does."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
from confluent_kafka import admin
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.baselines import broker

ISOLATIONS = ("read_uncommitted", "read_committed")
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}
_PATIENCE_S = 60.0
Headers = Sequence[tuple[str, bytes | None]]


def wait_until(done: Callable[[], bool], what: str, patience_s: float = _PATIENCE_S) -> None:
    """Look every 100 ms until something is so."""
    deadline = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < deadline, f"waited {patience_s} s in vain: {what}"
        time.sleep(0.1)


class Client:
    """What tests ask of a broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._servers = {"bootstrap.servers": address}
        self.admin = admin.AdminClient(self._servers)

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Settings with underscores for dots. Old timestamps would be deleted by default."""
        config = {"retention.ms": "-1"}
        config.update((key.replace("_", "."), str(value)) for key, value in settings.items())
        topic = admin.NewTopic(name, partitions, 1, config=config)
        for made in self.admin.create_topics([topic]).values():
            made.result(_PATIENCE_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; the broker renames its directories first."""
        for gone in self.admin.delete_topics([name]).values():
            gone.result(_PATIENCE_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """What kafka-delete-records does."""
        where = kafka.TopicPartition(topic, partition, before)
        for gone in self.admin.delete_records([where]).values():
            gone.result(_PATIENCE_S)

    def producer(self, **settings: object) -> kafka.Producer:
        """A producer that sends what it has only when it is flushed; dots as underscores."""
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return kafka.Producer({**self._servers, "linger.ms": 10_000, **given})

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit next offsets for a consumer group."""
        consumer = kafka.Consumer({**self._servers, "group.id": group})
        where = [kafka.TopicPartition(*partition, at) for partition, at in offsets.items()]
        consumer.commit(offsets=where, asynchronous=False)
        consumer.close()

    def partitions(self) -> list[tuple[str, int]]:
        """All topic-partitions that the broker has, internal ones left out."""
        topics = self.admin.list_topics(timeout=_PATIENCE_S).topics
        return sorted(
            (name, partition)
            for name, topic in topics.items()
            if not name.startswith("__")
            for partition in topic.partitions
        )

    def consume(self, topic: str, partition: int, isolation: str) -> dict[str, Any]:
        """All records that a consumer gets, and the offsets between which it got them."""
        settings = {
            **self._servers,
            "group.id": "observer",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
        consumer = kafka.Consumer(settings)
        try:
            where = kafka.TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(where, timeout=_PATIENCE_S)
            consumer.assign([kafka.TopicPartition(topic, partition, low)])
            return {"start": low, "end": high, "records": list(_until_the_end(consumer))}
        finally:
            consumer.close()

    def observe(self) -> dict[str, dict[str, Any]]:
        """What consumers of both isolations get of every topic-partition."""
        return {
            f"{topic}-{partition}": {
                "topic": topic,
                "partition": partition,
                **{level: self.consume(topic, partition, level) for level in ISOLATIONS},
            }
            for topic, partition in self.partitions()
        }


def _until_the_end(consumer: kafka.Consumer) -> Iterator[dict[str, Any]]:
    while True:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None, "the consumer gets neither a record nor the end"
        error = message.error()
        if error is not None:
            assert error.code() == kafka.KafkaError._PARTITION_EOF, error
            return
        yield as_json(message)


def as_json(message: Any) -> dict[str, Any]:
    """A record as ``expected.json`` has it."""
    kind, timestamp = message.timestamp()
    return {
        "offset": message.offset(),
        "timestamp": timestamp,
        "timestampType": TIMESTAMP_TYPES[kind],
        "key": _base64(message.key()),
        "value": _base64(message.value()),
        "headers": [[key, _base64(value)] for key, value in message.headers() or ()],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def write_expected(path: Path, what: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
    """What consumers got, a record in a line. Of the committed ones only the offsets are kept."""
    parts = []
    for name, partition in seen.items():
        everything, committed = (partition[level] for level in ISOLATIONS)
        known = {it["offset"]: it for it in everything["records"]}
        assert all(it == known[it["offset"]] for it in committed["records"])
        lines = ",\n".join(f"   {json.dumps(it)}" for it in everything.pop("records"))
        committed["offsets"] = [it["offset"] for it in committed.pop("records")]
        head = json.dumps(partition)[:-1]
        parts.append(f'  "{name}": {head}, "records": [\n{lines}\n  ]}}')
    head = json.dumps(what)[:-1]
    path.write_text(f'{head}, "partitions": {{\n' + ",\n".join(parts) + "\n}}\n")


@contextmanager
def java_client(jars: Sequence[Path]) -> Iterator[JavaGateway]:
    """A Java process in which Kafka's own clients can be called."""
    port = launch_gateway(
        classpath=broker.class_path(jars),
        java_path=broker.java_command(),
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway
    finally:
        gateway.shutdown()


class JavaProducer:
    """Kafka's own producer. ``flush`` ends a batch."""

    def __init__(self, gateway: JavaGateway, address: str, **settings: object) -> None:
        self._jvm = gateway.jvm
        self._sent: list[tuple[Any, Callable[[object, object], object]]] = []
        given = self._jvm.java.util.HashMap()
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        defaults: dict[str, object] = {
            "bootstrap.servers": address,
            "linger.ms": "10000",
            "key.serializer": serializer,
            "value.serializer": serializer,
        }
        for key, value in {**defaults, **settings}.items():
            given.put(key.replace("_", "."), str(value))
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(given)

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp: int,
        headers: Headers = (),
        on_delivery: Callable[[object, object], object],
    ) -> None:
        """The same arguments as librdkafka's; a batch is complete when it is flushed."""
        classes = self._jvm.org.apache.kafka.common.header.internals
        listed = self._jvm.java.util.ArrayList()
        for name, content in headers:
            listed.add(classes.RecordHeader(name, content))
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(
            topic, partition, timestamp, key, value, listed
        )
        self._sent.append((self._producer.send(record), on_delivery))

    def flush(self) -> None:
        """Send the batch, and tell of each record how that ended."""
        self._producer.flush()
        for future, on_delivery in self._sent:
            on_delivery(None, future.get())  # raises what went wrong
        self._sent.clear()

    def __getattr__(self, name: str) -> Callable[[], object]:
        """``close`` and the calls of transactions, by their Java names."""
        method: Callable[[], object] = getattr(self._producer, name)
        return method
