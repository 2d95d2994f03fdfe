"""What an upload copies, and what reaches the store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from storage_core import StoreConfig
from storage_core.objects.backend import read_object
from storage_core.objects.obstore_backend import ObstoreBackend, upload_pieces
from storage_core.objects.staging import encode_run
from tests.support.objects.object_proxy import proxied
from tests.support.objects.object_server import BUCKET, running
from tests.support.stores import columns_of

_MIB = 1 << 20


def test_frames_are_uploaded_from_where_they_are() -> None:
    run = encode_run(columns_of([b"%100d" % number for number in range(50_000)]), StoreConfig())
    buffers = run.buffers()
    pieces = list(upload_pieces(buffers))
    kept = {id(buffer) for buffer in buffers}
    copied = sum(len(piece) for piece in pieces if id(piece) not in kept)
    assert b"".join(pieces) == b"".join(buffers)
    assert copied < 0.05 * run.size, "offsets and headers"
    assert len(pieces) <= 3 * len(run.frames)


def test_small_buffers_are_joined_whatever_their_number() -> None:
    buffers = [b"%50d" % number for number in range(50_000)]
    pieces = list(upload_pieces([*buffers, b"x" * _MIB, b"last"]))
    assert b"".join(pieces) == b"".join([*buffers, b"x" * _MIB, b"last"])
    assert len(pieces) < 45
    assert list(upload_pieces([])) == []
    assert list(upload_pieces([b"", b""])) in ([], [b""])


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    pytest.importorskip("obstore", reason="the extra [objects] is not installed")
    with running() as options:
        yield options


def test_an_upload_holds_no_second_copy(server: dict[str, str]) -> None:
    data = [memoryview(bytes([number]) * (3 * _MIB)) for number in range(11)]
    backend = ObstoreBackend(f"s3://{BUCKET}/uploads", server)
    backend.put("warm", [b"up"])
    for key, several in (("data/parts", data), ("data/one", data[:2])):
        tracemalloc.start()
        try:
            backend.put(key, several)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < _MIB / 4, key
        assert read_object(backend, key) == b"".join(several)
    backend.create("commit", data[:2])
    assert read_object(backend, "commit") == b"".join(data[:2])


def test_a_large_object_goes_in_parts_of_8_mib(server: dict[str, str]) -> None:
    with proxied(server, likely={}) as (proxy, options):
        backend = ObstoreBackend(f"s3://{BUCKET}/parts", options)
        backend.put("data/small", [bytes(8 * _MIB)])
        assert proxy.requests == {"PUT": 1}
        proxy.forget()
        backend.put("data/large", [bytes(5 * _MIB)] * 5)
        # It begins and ends with a POST.
        assert proxy.requests == {"PUT": 4, "POST": 2}


@pytest.mark.parametrize(
    ("given", "proven"),
    [
        ({}, "signature"),
        ({"unsigned_payload": "true"}, "nothing"),
        (
            {"unsigned_payload": "true", "checksum_algorithm": "crc64nvme"},
            "x-amz-checksum-crc64nvme",
        ),
    ],
)
def test_bodies_are_signed_unless_the_options_say_otherwise(
    server: dict[str, str], given: dict[str, str], proven: str
) -> None:
    data = [memoryview(bytes([number]) * (3 * _MIB)) for number in range(4)]
    with proxied(server, likely={}) as (proxy, options):
        backend = ObstoreBackend(f"s3://{BUCKET}/proofs", {**options, **given})
        backend.put("data/one", data[:2])
        backend.put("data/parts", data)
        assert proxy.proven == {proven: 3}
        assert read_object(backend, "data/parts") == b"".join(data)
