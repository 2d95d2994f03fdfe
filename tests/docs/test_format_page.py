"""``docs/format.md`` shows the bytes that the engine writes, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from storage_core.format import lock_state as state
from storage_core.format import segment_statistics
from storage_core.format.buffer_encodings import delta, dictionary
from storage_core.format.columns import Columns
from storage_core.format.compression import decompress
from storage_core.format.frame import (
    HEADER_BYTES,
    check_frame,
    decode_body,
    draft_frame,
    finish_frame,
    unpack_header,
)
from storage_core.format.typed_body import decode_columns, encode_body
from storage_core.objects.manifests.block import columns_of, decode_block, encode_block
from storage_core.objects.manifests.table import slices_in
from storage_core.objects.slices import Slice
from storage_core.schema.conform import conform
from storage_core.schema.fields import Field, SchemaVersion, from_arrow
from storage_core.schema.keys import key_bytes
from storage_core.schema.rows import TypedRows
from tests.support import format_example
from tests.support.format_example import SEGMENTS
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs" / "format.md"
FRAME_BYTES = 256
HEX_FILES = {
    "idx": f"{SEGMENTS}/00000000000000000000.idx",
    "timeidx": f"{SEGMENTS}/00000000000000000000.timeidx",
    "tomb": f"{SEGMENTS}/00000000000000000000.tomb",
    "broken": f"{SEGMENTS}/00000000000000000003-248.broken",
    "watermark": "topics/orders/watermark",
    "lock": "topics/orders/0/lock",
    "times": "topics/orders/0/times",
}
JSON_FILES = [
    "meta/broker.id",
    "meta/checkpoint.json",
    "meta/consumer-offsets/billing.json",
    "topics/orders/topic.json",
]

# Typed rows as the document has them.
TYPED_SCHEMA = SchemaVersion(
    3,
    (
        Field(1, "id", pa.int64(), nullable=False),
        Field(2, "name", pa.string()),
        Field(5, "gone", pa.int8()),
    ),
)
TYPED_ROWS = [(5, "ab", None), (-1, None, None), (2, "c", None)]
ENCODED = ("delta", "dictionary")


def blocks(kind: str) -> dict[str, str]:
    """The document's fenced blocks of one kind, by the name after it."""
    found = re.findall(rf"^```{kind} (\S+)\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    assert len({name for name, _ in found}) == len(found), "a block's name stands twice"
    return dict(found)


def shown_bytes(name: str) -> bytes:
    """The bytes of a hex block; what follows a # is for people."""
    lines = blocks("hex")[name].splitlines()
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in lines))


def shown_paths(tree: str) -> Iterator[str]:
    """Paths of the files in a tree that is indented by two spaces a level."""
    above: list[str] = []
    for line in tree.splitlines():
        name = line.partition("#")[0].rstrip()
        depth = (len(name) - len(name.lstrip())) // 2
        above[depth:] = [name.strip()]
        if not name.endswith("/"):
            yield "".join(above)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of the document's store."""
    with pytest.MonkeyPatch.context() as patch:
        files = format_example.make(tmp_path_factory.mktemp("format") / "log", patch)
    word = state.unpack(files[HEX_FILES["lock"]])
    # How often the word was rewritten on the way is not part of the format.
    files[HEX_FILES["lock"]] = state.pack(word._replace(generation=8))
    slots = files[HEX_FILES["watermark"]]
    assert (len(slots), slots[60:4096], slots[4156:]) == (8192, bytes(4036), bytes(4036))
    files[HEX_FILES["watermark"]], files["watermark-before"] = slots[:60], slots[4096:4156]
    files["frame"] = files[f"{SEGMENTS}/00000000000000000000.log"][:FRAME_BYTES]
    return files


def test_every_example_of_the_document_is_compared() -> None:
    others = ["frame", "watermark-before", "key", "typed-body", "stats", "manifest-block", *ENCODED]
    assert sorted(blocks("hex")) == sorted([*HEX_FILES, *others])
    assert sorted(blocks("json")) == sorted(JSON_FILES)


def test_the_key_is_what_the_engine_hashes() -> None:
    at = pa.struct([("x", pa.bool_()), ("y", pa.list_(pa.float32()))])
    schema = pa.schema([("user", pa.string()), ("n", pa.int32()), ("at", at)])
    row = {"user": "ann", "n": 5, "at": {"x": True, "y": [1.5, None]}}
    batch = pa.RecordBatch.from_pylist([row], schema=schema)
    rows = conform(batch, SchemaVersion(1, from_arrow(schema)))
    assert [field.id for field in rows.schema.fields] == [1, 2, 3]
    assert key_bytes(rows, ["user", "n", "at"])[0].as_py() == shown_bytes("key")


@pytest.mark.parametrize("name", ["frame", "watermark-before", *HEX_FILES])
def test_hex_is_what_the_engine_writes(name: str, example: dict[str, bytes]) -> None:
    assert shown_bytes(name).hex(" ", 8) == example[HEX_FILES.get(name, name)].hex(" ", 8)


@pytest.mark.parametrize("path", JSON_FILES)
def test_json_is_what_the_engine_writes(path: str, example: dict[str, bytes]) -> None:
    assert blocks("json")[path] == example[path].decode()


def test_the_tree_is_that_of_the_example(example: dict[str, bytes]) -> None:
    lasting = [path for path in example if "/" in path and not path.endswith((".tomb", ".broken"))]
    assert sorted(shown_paths(blocks("text")["tree"])) == sorted(lasting)


def test_the_frame_reads_as_the_document_says() -> None:
    frame = pa.py_buffer(shown_bytes("frame"))
    header = unpack_header(frame)
    rest = frame.slice(HEADER_BYTES)
    check_frame(header, rest)
    batch = decode_body(header, rest)
    assert batch is not None
    assert batch.to_pydict() == {"value": [b"apple", b"fig"]}
    assert header.min_timestamp == header.max_timestamp == format_example.NINE_O_CLOCK


def test_the_typed_body_is_what_the_engine_writes_and_reads() -> None:
    shown = shown_bytes("typed-body")
    ids, names, _ = (list(column) for column in zip(*TYPED_ROWS, strict=True))
    rows = TypedRows(TYPED_SCHEMA, [pa.array(ids), pa.array(names), None], 3)
    body = encode_body(rows, {}, compression="none", level=3, statistics=b"{}")
    assert b"".join(body.pieces).hex(" ", 8) == shown.hex(" ", 8)
    found = decode_columns(
        shown, records=3, raw_length=len(shown), schema=TYPED_SCHEMA, wanted=[1, 2, 5]
    )
    assert {number: array.to_pylist() for number, array in found.items()} == {1: ids, 2: names}


def test_the_statistics_of_a_segment_are_what_the_engine_writes() -> None:
    ids, names, _ = (list(column) for column in zip(*TYPED_ROWS, strict=True))
    rows = TypedRows(TYPED_SCHEMA, [pa.array(ids), pa.array(names), None], 3)
    columns = Columns(3, 5, 0, None, None, None, rows.bounds, rows=rows)
    draft = draft_frame(columns, relative_offset=0, recovery_point=0, compression="none", level=3)
    log = Bytes(b"".join(map(bytes, finish_frame(draft).buffers)))
    found = segment_statistics.gather(log, 0)
    assert found is not None
    shown = shown_bytes("stats")
    assert segment_statistics.pack(log, found).hex(" ", 8) == shown.hex(" ", 8)
    assert segment_statistics.unpack(shown, log) == found


class Bytes:
    """A log in memory."""

    ahead = 1 << 20

    def __init__(self, data: bytes) -> None:
        self._data, self.size = memoryview(data), len(data)

    def read(self, position: int, size: int) -> memoryview:
        return self._data[position : position + size]


def test_the_block_of_a_manifest_reads_as_the_document_says() -> None:
    shown = shown_bytes("manifest-block")
    at = 1_767_225_600_000_000
    first = Slice(
        0, 100, "data/2026010100/load/a.frames", 0, 5000, 0, 0, 100, at, at + 10**6, 0x11111111
    )
    second = first._replace(base=100, end=300, key=first.key.replace("a.", "b."), size=9000)
    second = second._replace(records=200, smallest=at + 2 * 10**6, largest=at + 3 * 10**6)
    slices = [(0, first), (0, second._replace(checksum=0x22222222))]
    assert list(slices_in(decode_block(memoryview(shown), "example"))) == slices
    # The compressed bytes may differ from one release of zstd to the next.
    written = encode_block(columns_of(slices))
    plain = [decompress(pa.py_buffer(each[16:]), 2, 259).to_pybytes() for each in (shown, written)]
    assert plain[0] == plain[1]


def test_encoded_buffers_are_what_the_engine_writes() -> None:
    steps, width = delta(np.array([1000, 1001, 999, 1299]))
    assert (steps.tobytes(), width) == (shown_bytes("delta"), 2)
    texts = dictionary(np.array([0, 2, 2, 4, 6, 6, 8], "<i4"), pa.py_buffer(b"onononon"))
    assert texts is not None
    assert texts.indices.tobytes() + texts.words.tobytes() == shown_bytes("dictionary")
    assert texts.width == 1
