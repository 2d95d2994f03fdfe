"""The engine alone on an object store, against the library's GETs and PUTs of the same objects."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from typing import Any

from storage_core import Store
from storage_core.commit.staging import StagedPart

from .. import data
from ..data import RECORD_BYTES, Sizes
from ..measure import Bar, Row, clock, interleaved, speed_row
from .object_servers import Place

_PARTITIONS = 4
_ROWS = 10_000  # of a frame, as Spark's batches have it
_RECORDS = {data.FULL: 4_000_000, data.QUICK: 2_000_000, data.TINY: 20_000}
_AT_LEAST = Bar("at least", 0.8)


def engine_rows(sizes: Sizes, place: Place) -> Iterator[Row]:
    """One process reads all records of a topic, and stages as many."""
    url, records = f"{place.url}/engine", _RECORDS[sizes]
    library: Any = importlib.import_module("obstore")
    bare = importlib.import_module("obstore.store").from_url(
        url, config=dict(place.storage), client_options={"allow_http": True}
    )
    rows, jobs = data.columns(_ROWS), itertools.count()
    with Store.open(url, create=True, storage=place.storage) as store:
        store.create_topic("t", _PARTITIONS)

        def stage() -> list[StagedPart]:
            staging = store.stage(f"job-{next(jobs)}")
            for number in range(records // _ROWS):
                staging.write("t", number % _PARTITIONS, rows)
            return staging.finish()

        store.commit("job-0", stage())
        segments = [each for part in range(_PARTITIONS) for each in store.segments("t", part)]
        keys = sorted({each.path.partition("@")[0] for each in segments})
        bodies = [bytes(library.get(bare, key).bytes()) for key in keys]

        def read() -> None:
            store.read_ahead([(each.path, 0, each.size) for each in segments])
            found = sum(
                batch.num_rows for part in range(_PARTITIONS) for batch in store.read("t", part)
            )
            if found != records:
                raise AssertionError(f"read {found} records, expected {records}")

        def put() -> None:
            for key, body in zip(keys, bodies, strict=True):
                library.put(
                    bare, f"put/{key}", body, use_multipart=True, chunk_size=8 << 20,
                    max_concurrency=4,
                )  # fmt: skip

        found = interleaved(
            {
                "read": lambda: clock(read),
                "get": lambda: clock(lambda: [library.get(bare, key).bytes() for key in keys]),
                "write": lambda: clock(stage),
                "put": lambda: clock(put),
            },
            sizes.rounds,
        )
    size, what = records * RECORD_BYTES, f"of {records * RECORD_BYTES / 1e6:g} MB, {place.server}"
    yield speed_row(f"engine read {what}", found["read"], found["get"], size, _AT_LEAST, "GET")
    name = "multipart PUT"
    yield speed_row(f"engine staging {what}", found["write"], found["put"], size, _AT_LEAST, name)
