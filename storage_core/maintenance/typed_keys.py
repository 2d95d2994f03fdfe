"""The keys and tombstones of typed frames, as compaction needs them: few columns are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..format import typed_frames
from ..format.frame import FrameHeader
from ..format.selection import Schemas
from ..schema import keys
from ..schema.fields import Field


class FrameKeys(NamedTuple):
    """Key and tombstone of every row; offsets from the frame's start where there are holes."""

    key: pa.BinaryArray
    tombstones: npt.NDArray[np.bool_]
    offset_delta: pa.Array | None


class TypedKeys:
    """Reads the keys of one topic, whatever schema version a frame names."""

    def __init__(self, schemas: Schemas, key_columns: Sequence[str]) -> None:
        self._schemas = schemas
        self._key_columns = tuple(key_columns)
        # Of the first version: whether a row is a tombstone must not depend on the version that it
        # was written with.
        self._has_tombstones = bool(self._others(schemas.get(1).fields))

    def of_frame(self, header: FrameHeader, rest: bytes | memoryview) -> FrameKeys:
        """The keys of a checked frame with rows.

        Raises:
            BrokenFrameError: the frame has no rows of a typed topic, or cannot be decoded.
        """
        stored = self._schemas.get(typed_frames.schema_version(header, rest))
        others = self._others(stored.fields)
        possible = self._has_tombstones and all(field.nullable for field in others)
        # Few frames have a row without the first value. Only those are decoded as a whole.
        wanted = {*self._key_columns, others[0].name} if possible else self._key_columns
        rows, deltas, _ = typed_frames.decode_rows(header, rest, self._schemas, wanted)
        found = np.zeros(header.records, dtype=np.bool_)
        if possible:
            found = keys.tombstones(rows, self._key_columns)
            if found.any():
                rows = typed_frames.decode_rows(header, rest, self._schemas).rows
                found = keys.tombstones(rows, self._key_columns)
        return FrameKeys(keys.key_bytes(rows, self._key_columns), found, deltas)

    def _others(self, fields: Sequence[Field]) -> list[Field]:
        return [field for field in fields if field.name not in self._key_columns]
