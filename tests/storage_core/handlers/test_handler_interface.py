"""What a handler of one topic-partition does: one that writes to the log, and one that stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from storage_core import DiskHandler, DiskManager, Stage, Store, StoreConfig
from storage_core.commit.staging import StagingHandler
from storage_core.errors import StoreClosedError
from storage_core.types import TopicPartitionHandler
from tests.support.stores import TOPIC, columns_of, values


class Owner(NamedTuple):
    """Hands handlers out, appends to one, and makes everything visible."""

    handler: Callable[[int], TopicPartitionHandler]
    append: Callable[[TopicPartitionHandler, bytes], object]
    publish: Callable[[], object]


def disk(store: Store) -> Owner:
    manager = DiskManager(StoreConfig(log_dir=store.path))

    def append(handler: TopicPartitionHandler, value: bytes) -> None:
        assert isinstance(handler, DiskHandler)
        handler.append(value)

    return Owner(lambda n: manager.get_handler(TOPIC, n), append, manager.close_all_handlers)


def staging(store: Store) -> Owner:
    stage: Stage = store.stage("job")

    def append(handler: TopicPartitionHandler, value: bytes) -> None:
        assert isinstance(handler, StagingHandler)
        handler.append(columns_of([value]))

    return Owner(
        lambda n: stage.get_handler(TOPIC, n), append, lambda: store.commit("job", stage.finish())
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.open(tmp_path / "log", create=True)
    made.create_topic(TOPIC, 2)
    return made


@pytest.fixture(params=[disk, staging])
def owner(store: Store, request: pytest.FixtureRequest) -> Owner:
    made: Owner = request.param(store)
    return made


def test_a_handler_names_its_topic_partition(owner: Owner) -> None:
    assert [(owner.handler(n).topic, owner.handler(n).partition) for n in (0, 1)] == [
        (TOPIC, 0),
        (TOPIC, 1),
    ]
    owner.publish()


def test_each_partition_has_one_handler_until_it_is_closed(owner: Owner) -> None:
    first, other = owner.handler(0), owner.handler(1)
    assert owner.handler(0) is first
    assert other is not first
    first.close()
    assert owner.handler(0) is not first
    assert owner.handler(1) is other
    owner.publish()


def test_records_keep_their_order_across_flushes_and_handlers(store: Store, owner: Owner) -> None:
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(30):
        partition = number % 2
        expected[partition].append(b"%d" % number)
        handler = owner.handler(partition)
        owner.append(handler, b"%d" % number)
        if number % 7 == 0:
            handler.flush()
        if number == 20:
            handler.close()
    owner.publish()
    assert [values(store, partition=n) for n in (0, 1)] == [expected[0], expected[1]]


def test_a_closed_handler_refuses_records_and_may_be_closed_twice(
    store: Store, owner: Owner
) -> None:
    handler = owner.handler(0)
    owner.append(handler, b"a")
    handler.close()
    handler.close()
    with pytest.raises(StoreClosedError, match=f"{TOPIC}.0 was closed. Get a new one to write"):
        owner.append(handler, b"late")
    owner.publish()
    assert values(store) == [b"a"]
