"""Bugs put into the engine on purpose: each takes out one of its checks. See ``mutants.py``."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import pytest

from storage_core.commit import append_staged
from storage_core.commit.part_validation import verify_parts
from storage_core.commit.protocol import Committer
from storage_core.commit.staging import frame_checksum
from storage_core.format import frame
from storage_core.format import lock_state as state
from storage_core.format import sparse_index as index
from storage_core.io import json_files
from storage_core.io.checksum import crc32c
from storage_core.log.recovery import Recovery
from storage_core.log.tail import Tail
from storage_core.segments import index_files, segment_times
from storage_core.segments.continuity import covered_runs
from storage_core.segments.listing import log_path
from storage_core.segments.segment_reader import SegmentReader
from storage_core.vfs import Vfs
from tests.crash.bugs.mutating import AnyChecksum, Instead, Mutant
from tests.support.patching import Patch, nothing, replaced


def unchecked(*by: Any) -> Patch:
    """These functions take every checksum for the right one."""
    return replaced(crc32c, AnyChecksum, by)


def unchecked_metadata(patch: pytest.MonkeyPatch) -> None:
    def load(data: bytes, path: str, limit: int = 0) -> Any:  # noqa: ARG001
        fields = json.loads(data)
        fields.pop("crc32c", None)
        return fields

    replaced(json_files.load, load)(patch)


def any_index(patch: pytest.MonkeyPatch) -> None:
    """Indexes of sealed segments count whatever their checksum says."""

    def read(vfs: Vfs, directory: str, base: int, kind: Any, log_size: int) -> Any:  # noqa: ARG001
        data = index_files.read_index(vfs, directory, base, kind) or b""
        entries = data[: len(data) - len(data) % index.ENTRY_BYTES][: -index.FOOTER_BYTES]
        return index._columns(entries)

    replaced(index_files.sealed_index, read, by=(SegmentReader,))(patch)


def entries_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether an entry of an index leads to a frame."""
    walk = SegmentReader._walk

    def unlooked(self: SegmentReader, at: Any) -> Any:
        return iter(()) if sys._getframe(1).f_code.co_name == "locate" else walk(self, at)

    patch.setattr(SegmentReader, "_walk", unlooked)


def any_topic_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """A commit does not look whether its topic was created again meanwhile."""
    plan = Committer.plan

    def trusting(self: Committer[Any], request: Any, parts: Any, topics: Any, *others: Any) -> Any:
        host = self._logs
        same = Instead(host, topic=lambda name: Instead(host.topic(name), uuid=topics[name]))
        self._logs = same
        try:
            return plan(self, request, parts, topics, *others)
        finally:
            self._logs = host

    patch.setattr(Committer, "plan", trusting)


def any_size_is_resumed(patch: pytest.MonkeyPatch) -> None:
    """Who finds a clean word does not compare the file with it."""
    resume = Tail.resume

    def trusting(self: Tail, found: state.PartitionState) -> bool:
        size = self._vfs.stat(log_path(self._directory, found.active_base))
        return resume(self, found._replace(active_size=0 if size is None else size.size))

    patch.setattr(Tail, "resume", trusting)


def recovery_point_is_forgotten(step: str) -> Patch:
    """A step of recovery takes a log for whole that ends too early."""

    def change(patch: pytest.MonkeyPatch) -> None:
        method = getattr(Recovery, step)
        patch.setattr(
            Recovery,
            step,
            lambda self, *a: method(
                dataclasses.replace(self, recovery_point=0, high_watermark=0), *a
            ),
        )

    return change


def anything_is_torn(patch: pytest.MonkeyPatch) -> None:
    """Whatever does not check is cut, however durable it was."""
    patch.setattr(Recovery, "_require_torn", nothing)


CHECKS: dict[str, Mutant] = {
    "checksums of frames are not compared": Mutant(
        unchecked(frame.unpack_header, frame.check_frame), "wrong bytes of .log"
    ),
    "checksums of metadata are not compared": Mutant(unchecked_metadata, "wrong bytes of .json"),
    "checksums of state words are not compared": Mutant(unchecked(state.unpack), "wrong words"),
    "a clean word is believed whatever the file has": Mutant(any_size_is_resumed, "cut logs"),
    "a log that ends too early is not noticed": Mutant(
        recovery_point_is_forgotten("_recover_tail"), "cut logs"
    ),
    "a log that is gone is not noticed": Mutant(
        recovery_point_is_forgotten("_recover_empty"), "removed logs"
    ),
    "checksums of kept times are not compared": Mutant(
        unchecked(segment_times.read_times), "wrong bytes of /times"
    ),
    "sealed indexes are believed": Mutant(any_index, "wrong bytes of .timeidx"),
    "entries of indexes are believed": Mutant(entries_are_believed, "wrong bytes of .idx"),
    "a recreated topic is not noticed": Mutant(any_topic_of_the_name, "recreated topics"),
    "staged files are not compared when they are applied": Mutant(
        replaced(frame_checksum, AnyChecksum, by=(append_staged.read_part,)), "other parts"
    ),
    "staged files are not compared before a commit": Mutant(replaced(verify_parts), "wrong parts"),
    "whatever does not check is cut": Mutant(anything_is_torn, "wrong bytes"),
    "missing segments are not noticed": Mutant(
        replaced(covered_runs, lambda *_: [], by=(Recovery,)), "wrong bytes"
    ),
}
