"""What a real broker writes is read as its consumers get it: every case, and random loads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, get_args

import pytest

from storage_core.types import IsolationLevel
from tests.kafka.cases import CASES, CODECS, Case, World, records, send
from tests.kafka.making import make
from tests.support.brokers.kafka_directories import compare

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SEEDS = 2
_STEPS = 150


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_every_record_is_what_a_consumer_gets(tmp_path: Path, case: Case) -> None:
    made = make(case, tmp_path)
    for isolation in get_args(IsolationLevel):
        compare(made, isolation)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_load_is_what_a_consumer_gets(tmp_path: Path, seed: int) -> None:
    load = _Load(random.Random(seed))
    case = Case("random", "A random load.", load.run, {"log.cleaner.backoff.ms": 100}, "running")
    made = make(case, tmp_path)
    for isolation in get_args(IsolationLevel):
        compare(made, isolation)


class _Load:
    """Producers of every kind that take turns, and a broker that is killed once."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._sent = 0

    def run(self, world: World) -> None:
        choose = self._choose
        self._make_topics(world)
        producers = self._producers(world)
        for step in range(_STEPS):
            if step == _STEPS // 2:
                world.kill()
                world.start()
                producers = self._producers(world)
            self._step(choose.choice(producers))
        for producer, is_open in producers:
            if is_open is not None and choose.random() < 0.5:
                world.open.append(producer)
                producer.begin_transaction()
                self._send(producer)
        at = choose.randrange(20)
        world.client.delete_records("t0", 0, at)

    def _make_topics(self, world: World) -> None:
        for number in range(3):
            world.client.create_topic(
                f"t{number}",
                2,
                internal_segment_bytes=self._choose.choice([8_000, 20_000, 1 << 20]),
                index_interval_bytes=self._choose.choice([0, 300, 4096]),
                segment_index_bytes=self._choose.choice([100, 4000]),
                cleanup_policy="compact" if number == 2 else "delete",
                min_cleanable_dirty_ratio=0.01,
                compression_type=self._choose.choice(["producer", *CODECS[1:]]),
                message_timestamp_type=self._choose.choice(["CreateTime", "LogAppendTime"]),
            )

    def _producers(self, world: World) -> list[Any]:
        made: list[Any] = []
        for number, codec in enumerate(CODECS):
            plain = world.client.producer(compression_type=codec, enable_idempotence=number % 2 > 0)
            name = f"app-{number}"
            transactional = world.client.producer(compression_type=codec, transactional_id=name)
            transactional.init_transactions()
            made += [(plain, None), (transactional, False)]
        return made

    def _step(self, chosen: tuple[Any, bool | None]) -> None:
        producer, in_transactions = chosen
        if in_transactions is None:
            self._send(producer)
            return
        producer.begin_transaction()
        for _ in range(self._choose.randrange(1, 4)):
            self._send(producer)
        ended = self._choose.choice([producer.commit_transaction, producer.abort_transaction])
        ended()

    def _send(self, producer: Any) -> None:
        count = self._choose.choice([1, 2, 7, 30])
        self._sent += count
        few = [it for it in records(count, self._sent) if it.key is not None]
        few = few or [records(1)[0]]  # a compacted topic takes no record without a key
        send(producer, f"t{self._choose.randrange(3)}", few, self._choose.randrange(2))
