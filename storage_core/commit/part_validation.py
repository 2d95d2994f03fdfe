"""Checks the parts that tasks report, before the commit is decided. It trusts no field.

After the commit point a part that cannot be appended would block its partitions forever. So this
module finds every possible fault first: in the names, in the numbers, and in the frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..errors import BrokenFrameError, InvalidCommitError
from ..format.file_names import is_name
from ..format.frame import (
    HEADER_BYTES,
    SPARSE,
    TRAILER_BYTES,
    FrameHeader,
    check_frame,
    decode_body,
    unpack_header,
)
from ..format.selection import SchemasOf
from ..lazy import LazyModule
from ..metadata.topic_file import TopicFile
from ..vfs import Vfs
from .staging import SUFFIX, StagedPart, checksum_of, frame_checksum

if TYPE_CHECKING:
    from ..format import typed_body, typed_frames
    from ..schema.fields import SchemaVersion
else:
    typed_body = LazyModule("storage_core.format.typed_body")
    typed_frames = LazyModule("storage_core.format.typed_frames")

_MAX_UINT32 = 0xFFFFFFFF


def part_from(staging: str, fields: Mapping[str, Any]) -> StagedPart:
    """A part from untrusted fields.

    Raises:
        TypeError, ValueError: the path is not a staging file, or a field is out of range.
    """
    runs = tuple((position, size) for position, size in fields["runs"])
    part = StagedPart(**{**fields, "runs": runs})
    if not isinstance(part.path, str):
        raise TypeError(f"the path must be str, got {part.path!r}")
    prefix, _, rest = part.path.partition(f"{staging}/")
    job, _, name = rest.partition("/")
    if prefix or not is_name(job) or not is_name(name) or not name.endswith(SUFFIX):
        raise ValueError(f"{part.path!r} is not a staging file")
    checksums = (part.checksum, part.schema_checksum)
    numbers = (part.partition, part.records, *checksums, *(n for run in runs for n in run))
    plain = all(type(number) is int and number >= 0 for number in numbers)
    if not plain or not part.records or not all(size for _, size in runs):
        raise ValueError(f"the part of {part.topic!r}: a number is out of range: {numbers[:8]}")
    if not is_name(part.topic) or max(checksums) > _MAX_UINT32 or type(part.own_file) is not bool:
        raise ValueError(f"the part of {part.topic!r}: topic, checksum or own_file is invalid")
    schema = part.schema
    if schema is not None and (type(schema) is not int or not 1 <= schema <= _MAX_UINT32):
        raise ValueError(f"the part of {part.topic!r}: schema {schema!r} is no schema version")
    return part


def claimed_parts(staging: str, job: str, parts: Sequence[Any]) -> list[StagedPart]:
    """The parts that a job's commit messages name. It does not read the staged files.

    Raises:
        InvalidCommitError: a part is invalid, of another job, or given twice.
    """
    claimed = []
    frames: set[tuple[str, int]] = set()
    for given in parts:
        try:
            part = part_from(staging, {name: getattr(given, name) for name in StagedPart.__slots__})
            if part.path.split("/")[-2] != job:
                raise ValueError(f"{part.path!r} does not belong to job {job}")
            starts = {(part.path, position) for position, _ in part.runs}
            if len(starts) < len(part.runs) or not frames.isdisjoint(starts):
                raise ValueError(f"frames of {part.path!r} are given twice; give each part once")
            frames |= starts
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidCommitError(f"a commit message is invalid: {error}.") from error
        claimed.append(part)
    return claimed


def verify_parts(
    vfs: Vfs,
    parts: Sequence[StagedPart],
    topics: Mapping[str, TopicFile],
    schemas_of: SchemasOf | None,
) -> None:
    """Compare parts with their files. Of large parts, which are linked, it reads only the headers.

    Args:
        vfs: The store's files.
        parts: The parts of one job.
        topics: Their topics.
        schemas_of: The schema versions of typed topics.

    Raises:
        InvalidCommitError: a file is missing, or differs from what the task reported.
    """
    with ExitStack() as stack:
        opened: dict[str, int] = {}
        for part in parts:
            try:
                topic = topics[part.topic]
                if part.partition >= topic.partitions:
                    raise ValueError(f"{part.topic!r} has no partition {part.partition}")
                if topic.is_typed != (part.schema is not None):
                    raise ValueError(f"{part.topic!r} is a {topic.kind} topic")
                if part.path not in opened:
                    opened[part.path] = vfs.open(part.path, "read")
                    stack.callback(vfs.close, opened[part.path])
                _verify(vfs, opened[part.path], part, topic, schemas_of)
            except FileNotFoundError as error:
                raise InvalidCommitError(
                    f"{part.path} is missing. The job was aborted, or its staging was deleted."
                ) from error
            except (BrokenFrameError, ValueError) as error:
                raise InvalidCommitError(
                    f"{part.path} differs from what its task reported: {error}"
                ) from error


def _verify(
    vfs: Vfs, fd: int, part: StagedPart, topic: TopicFile, schemas_of: SchemasOf | None
) -> None:
    records = checksum = end = 0
    head = HEADER_BYTES + (0 if part.schema is None else typed_body.PREAMBLE_BYTES)
    for position, size in part.runs:
        if part.own_file and position != end:
            raise ValueError(f"a frame should begin at byte {end}, not {position}")
        data = memoryview(vfs.pread(fd, head if part.own_file else size, position))
        header = unpack_header(data)
        if header.is_typed != (part.schema is not None) or (
            header.is_typed
            and typed_frames.schema_version(header, data[HEADER_BYTES:]) != part.schema
        ):
            raise ValueError(f"the frame at byte {position} does not name schema {part.schema}")
        if not records and part.schema is not None and schemas_of is not None:
            _verify_schema(part, topic, schemas_of(part.topic).get(part.schema))
        if header.length != size or header.relative_offset != records or header.columns & SPARSE:
            raise ValueError(f"the frame at byte {position} is not the one that was staged there")
        end = position + size
        if part.own_file:
            trailer = vfs.pread(fd, TRAILER_BYTES, end - TRAILER_BYTES)
        else:
            check_frame(header, data[HEADER_BYTES:])
            _decode(header, data[HEADER_BYTES:], part, schemas_of)
            trailer = bytes(data[-TRAILER_BYTES:])
        checksum = frame_checksum([data[:HEADER_BYTES], trailer], checksum)
        records += header.records
    if (records, checksum) != (part.records, part.checksum):
        raise ValueError(
            f"it has {records} records and checksum {checksum}, not {part.records} and "
            f"{part.checksum}"
        )
    if part.own_file and vfs.fstat(fd).size != end:
        raise ValueError(f"the file should end at byte {end}, with the part's last frame")


def _verify_schema(part: StagedPart, topic: TopicFile, registered: SchemaVersion) -> None:
    if checksum_of(registered, topic) != part.schema_checksum:
        raise ValueError(
            f"{part.topic!r} has other columns in schema version {part.schema}, or other key "
            "columns: it was deleted and created again meanwhile. Run the job again"
        )


def _decode(
    header: FrameHeader, rest: memoryview, part: StagedPart, schemas_of: SchemasOf | None
) -> None:
    """Decode a body: what cannot be decoded must not be appended."""
    if part.schema is None or schemas_of is None:
        decode_body(header, rest)
    else:
        typed_frames.decode_rows(header, rest, schemas_of(part.topic))
