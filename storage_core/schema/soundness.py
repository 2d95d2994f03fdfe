"""Whether Arrow may trust the buffers of an array, and whether nulls are where they may be.

Buffers are sound if offsets are in order and texts in UTF-8. Arrow looks at every text by itself.
Where all bytes are ASCII, every cut between them is valid UTF-8, and numpy sees that several times
as fast. Where they are not, Arrow decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from ..format.numbers import is_present, starts_of
from .fields import Field, Path
from .nesting import children_of, entries_of, entry_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    Present: TypeAlias = Callable[[], npt.NDArray[np.bool_]]

_ASCII = 128


def validate(array: pa.Array) -> None:
    """Check all bytes of the rows. Arrow would check those of the whole array they are a slice of.

    How many rows are null is checked where texts and numbers are null, not for lists and structs.

    Raises:
        pa.ArrowInvalid: the buffers are not sound.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        array.validate()
        for child in children_of(array):
            validate(child)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        array.validate()
        starts = starts_of(array)
        if (starts[1:] < starts[:-1]).any():
            raise pa.ArrowInvalid("offsets of lists go backwards")
        validate(entries_of(array))
    elif not (pa.types.is_string(kind) and _is_ascii(array)):
        array.validate(full=True)


def _is_ascii(texts: pa.Array) -> bool:
    """Whether texts without nulls are sound, and ASCII. False says nothing about them."""
    texts.validate()
    validity, _, letters = texts.buffers()
    if validity is not None or letters is None or not len(texts):
        return False
    starts = starts_of(texts)
    first, last = int(starts[0]), int(starts[-1])
    if (starts[1:] < starts[:-1]).any() or not 0 <= first < last <= letters.size:
        return False
    return bool(np.frombuffer(letters, np.uint8, last - first, first).max() < _ASCII)


def forbidden_null(array: pa.Array, field: Field) -> Path | None:
    """The path of what is null although it is NOT NULL; None if there is no such null.

    A null inside of a null counts as little as an entry that no row has.
    """
    return _forbidden(array, field, lambda: np.ones(len(array), dtype=np.bool_))


def _forbidden(array: pa.Array, field: Field, present: Present) -> Path | None:
    if not field.nullable and array.null_count and (present() & ~is_present(array)).any():
        return (field.name,)
    if not field.children:
        return None

    def inside() -> npt.NDArray[np.bool_]:
        rows = present() & is_present(array)
        return rows if pa.types.is_struct(array.type) else rows[entry_rows(array)]

    for child, inner in zip(children_of(array), field.children, strict=True):
        found = _forbidden(child, inner, inside)
        if found is not None:
            return (field.name, *found)
    return None
