"""What an upload copies, and what reaches the store."""

from __future__ import annotations

import tracemalloc

import pytest

from storage_core import StoreConfig
from storage_core.objects.backend import read_object
from storage_core.objects.obstore_backend import ObstoreBackend, upload_pieces
from storage_core.objects.staging import encode_run
from tests.support.object_server import BUCKET, running
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


def test_an_upload_holds_no_second_copy() -> None:
    pytest.importorskip("obstore", reason="the extra [objects] is not installed")
    data = [memoryview(bytes([number]) * (3 * _MIB)) for number in range(11)]
    with running() as options:
        backend = ObstoreBackend(f"s3://{BUCKET}/uploads", options)
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
