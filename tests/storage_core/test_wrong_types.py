"""Public functions take lists, tuples and Arrow alike, and say what they want of anything else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import storage_core
from storage_core import (
    DiskHandler,
    DiskManager,
    Stage,
    StorageError,
    Store,
    StoreConfig,
    convert,
    make_columns,
    partition_for_keys,
    use_processors,
)
from tests.support.stores import TOPIC, columns_of, make_store, values

WRONG: list[Any] = [
    None, object(), 1.5, -1, True, "x", b"x", [], ["x"], ("x",), {"x": 1}, {1: "x"}, [None, 3],
    {TOPIC: {0: "x"}}, pa.array([1, 2]), pa.array(["a"]), np.array([1.5]), Path("x"), float("nan"),
    10**30, lambda *_: False, "", "\0", "é",
]  # fmt: skip

# A value that is right, for parameters without a default. A setting of the store or of a topic is
# checked by its own tests.
RIGHT: dict[str, Any] = {
    "topic": TOPIC, "partition": 0, "values": [b"a"], "keys": [b"a"], "slices": [], "timestamp": 0,
    "group": "g", "offsets": {TOPIC: {0: 1}}, "before": {0: 0}, "job": "j", "parts": [], "total": 1,
    "timestamps": None, "headers": None, "now_us": 0, "max_record_bytes": 99, "value": b"a",
    "offset": 0, "max_messages": 1, "partitions": 3, "text": "", "settings": {}, "count": 1,
    "columns": columns_of([b"a"]), "data": pa.table({"a": [1]}), "segments": [], "transaction": "x",
    "start": 0, "end": 1, "row": {"a": 1}, "where": "_offset > 1",
    "places": [], "path": "x",
}  # fmt: skip
# For callers inside the package, or with an argument that only the operating system can check.
INTERNAL = {"adopt_schemas", "append_columns", "check_columns", "send_current_segment"}
CLASSES = (Store, Stage, DiskHandler, DiskManager)


def methods(kind: type) -> list[str]:
    return [
        name
        for name, found in inspect.getmembers(kind, callable)
        if not name.startswith("_") and name not in INTERNAL and inspect.signature(found).parameters
    ]


def refused_badly(make: Callable[[], Any], **right: Any) -> Iterator[str]:
    """Calls with one wrong argument each that end in anything but a result or a typed error."""
    parameters = inspect.signature(make()).parameters.values()
    given = {**RIGHT, **right}
    base = {each.name: given[each.name] for each in parameters if each.default is each.empty
            and each.kind is not each.VAR_KEYWORD}  # fmt: skip
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        for wrong in WRONG:
            call = make()
            try:
                result = call(**{**base, parameter.name: wrong})
                if isinstance(result, Iterator):
                    list(islice(result, 3))
            except StorageError as error:
                if not str(error).strip():
                    yield f"{call.__qualname__}({parameter.name}={wrong!r}): no text"
            except Exception as error:
                yield f"{call.__qualname__}({parameter.name}={wrong!r}): {error!r}"


def _same(call: Any) -> Any:
    return call


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    store = Store.open(tmp_path / "log", create=True, config=StoreConfig(fsync="none"))
    store.create_topic(TOPIC)
    store.append(TOPIC, 0, [b"a", b"b"], keys=[b"k", b"l"])
    return store


@pytest.mark.parametrize("name", [name for name in methods(Store) if name != "open"])
def test_methods_of_a_store(store: Store, name: str) -> None:
    (segment,) = store.segments(TOPIC, 0)

    def make() -> Any:
        if TOPIC not in store.topics():
            store.create_topic(TOPIC)
        return getattr(store, name)

    assert list(refused_badly(make, segment=segment)) == []


@pytest.mark.parametrize("name", methods(Stage))
def test_methods_of_a_stage(store: Store, name: str) -> None:
    stage = store.stage("j")
    assert list(refused_badly(lambda: getattr(stage, name))) == []


@pytest.mark.parametrize("kind", [DiskHandler, DiskManager])
def test_methods_of_handlers(tmp_path: Path, kind: type) -> None:
    manager = DiskManager(StoreConfig(log_dir=str(tmp_path / "logs"), linger_ms=0, fsync="none"))
    target = manager if kind is DiskManager else manager.get_handler(TOPIC, 0)
    for name in methods(kind):
        assert list(refused_badly(partial(getattr, target, name))) == []
    manager.close_all_handlers()


def test_functions_and_constructors(store: Store, tmp_path: Path) -> None:
    settings = (StoreConfig.from_mapping, StoreConfig.parse, StoreConfig.load, StoreConfig)
    others = (partition_for_keys, make_columns, use_processors, Store.open, DiskManager)
    calls: list[Any] = [*settings, *others]
    for call in calls:
        found = refused_badly(partial(_same, call), path="none")
        assert list(found) == [], call
    use_processors(2)
    targets = (tmp_path / f"target-{number}" for number in range(1000))
    for wrong in WRONG:
        with suppress(StorageError):
            convert(wrong, next(targets))
        with suppress(StorageError):
            convert(store, wrong)
    parameters = inspect.signature(convert).parameters
    for name in set(parameters) - {"source", "target"}:
        for wrong in WRONG:
            with suppress(StorageError):
                convert(store, next(targets), **{name: wrong})


def test_everything_public_that_takes_arguments_is_walked() -> None:
    walked = {"convert", "make_columns", "partition_for_keys", "use_processors", "StoreConfig"}
    walked |= {kind.__name__ for kind in CLASSES}
    # Values that functions take and return.
    returned = {"Columns", "CommitResult", "Converted", "Field", "OffsetRange", "Problem",
                "Progress", "ReadResult", "RecoveryReport", "SchemaVersion", "SegmentInfo",
                "StagedPart", "TimeRange", "TopicFile", "UpkeepProgress",
                "UpkeepReport"}  # fmt: skip
    public = {
        name
        for name in storage_core.__all__
        if callable(found := getattr(storage_core, name))
        and not (isinstance(found, type) and issubclass(found, Exception))
    }
    assert public == walked | returned


SHAPES: list[Callable[[list[Any]], Any]] = [
    list,
    tuple,
    pa.array,
    lambda items: pa.chunked_array([items]),
]


@pytest.mark.parametrize("shape", SHAPES, ids=["list", "tuple", "arrow", "chunked"])
def test_lists_tuples_and_arrow_are_alike(
    tmp_path: Path, shape: Callable[[list[Any]], Any]
) -> None:
    store = make_store(tmp_path / "log")
    store.append(TOPIC, 0, shape([b"a", b"b"]), keys=shape([b"k", None]), timestamps=shape([5, 6]))
    (batch,) = store.read(TOPIC, 0, columns=shape(["value", "key"]))
    assert batch.to_pydict() == {"value": [b"a", b"b"], "key": [b"k", None]}
    (segment,) = store.segments(TOPIC, 0)
    (batch,) = store.read_slices(TOPIC, 0, [(segment, 0, 2)], columns=shape(["offset"]))
    assert batch.to_pydict() == {"offset": [0, 1]}
    assert partition_for_keys(shape(["a", None]), 3).tolist() == [
        *partition_for_keys(pa.array([b"a"]), 3), storage_core.NO_KEY,
    ]  # fmt: skip
    assert partition_for_keys(shape([None]), 3).tolist() == [storage_core.NO_KEY]
    convert(store, tmp_path / "target", topics=shape([TOPIC]), drop=shape(["key"]))
    assert values(Store.open(tmp_path / "target")) == [b"a", b"b"]
    assert store.commit("j", [], topics=shape([TOPIC])) is not None


def test_one_name_in_place_of_a_list_is_explained(store: Store) -> None:
    with pytest.raises(StorageError, match=r"columns must be a list of names, got 'value'\. Put"):
        store.read(TOPIC, 0, columns="value")
    with pytest.raises(StorageError, match=r"keys must be .* a list of bytes or str, got str"):
        partition_for_keys("a", 3)
