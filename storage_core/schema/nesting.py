"""Lists, maps and structs taken apart and put together again, without looking at single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..format.numbers import bounds_of, is_present, number_column, numbers_of, starts_of

if TYPE_CHECKING:
    import numpy.typing as npt

_MOST_ENTRIES = (1 << 31) - 1


def children_of(array: pa.Array) -> tuple[pa.Array, ...]:
    """What is inside the rows of a struct, list or map: fields, elements, or keys and values.

    Only entries from the first to the last row, those of null rows among them.
    """
    if pa.types.is_struct(array.type):
        return tuple(array.field(index) for index in range(array.type.num_fields))
    entries = entries_of(array)
    return (entries.field(0), entries.field(1)) if pa.types.is_map(array.type) else (entries,)


def entries_of(array: pa.Array) -> pa.Array:
    """The elements of a list, or the pairs of a map, from the first to the last row."""
    starts = starts_of(array)
    first = int(starts[0])
    # MapArray.keys and .items forget where a sliced child begins; .values does not.
    return array.values.slice(first, int(starts[-1]) - first)


def rebuild(array: pa.Array, kind: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """The same rows with the same nulls, but with other children: a struct, list or map.

    The caller makes sure that no key of a map is null: Arrow would end the process.
    """
    if pa.types.is_struct(kind):
        buffers = [validity_of(array)]
    else:
        starts = starts_of(array)
        rebased = number_column(starts - starts[0]).buffers()[1]
        buffers = [validity_of(array), rebased]
    if pa.types.is_map(kind):
        keys, items = children
        pairs = pa.struct([kind.key_field, kind.item_field])
        children = [pa.Array.from_buffers(pairs, len(keys), [None], 0, children=[keys, items])]
    nulls = array.null_count
    return pa.Array.from_buffers(kind, len(array), buffers, nulls, children=list(children))


def validity_of(array: pa.Array) -> pa.Buffer | None:
    """The bits that say which rows are not null, from the first bit on; None if all are."""
    if array.null_count == 0:
        return None
    if array.offset == 0:
        return array.buffers()[0]
    return pa.py_buffer(np.packbits(is_present(array), bitorder="little"))


def as_list(array: pa.Array) -> pa.Array:
    """A large, fixed-size or view list as a list with the same elements.

    Arrow's own cast of a view list loses the last row (found with 26.0.1).

    Raises:
        pa.ArrowInvalid: there are more elements than a list can count.
    """
    import pyarrow.compute as pc  # only what comes from elsewhere than Spark has such lists

    lengths = numbers_of(pc.list_value_length(array))
    bounds = bounds_of(lengths)
    if int(bounds[-1]) > _MOST_ENTRIES:
        raise pa.ArrowInvalid(f"{int(bounds[-1])} elements, more than a list can count")
    starts = number_column(bounds.astype(np.int32)).buffers()[1]
    kind = pa.list_(array.type.value_field)
    buffers = [validity_of(array), starts]
    return pa.Array.from_buffers(
        kind, len(array), buffers, array.null_count, children=[array.flatten()]
    )


def entry_rows(array: pa.Array) -> npt.NDArray[np.intp]:
    """For each entry of a list or map, the row that it belongs to."""
    starts = starts_of(array)
    return np.repeat(np.arange(len(array)), starts[1:] - starts[:-1])
