"""Whether Arrow may trust the buffers of an array: offsets in order, texts in UTF-8.

Arrow looks at every text by itself. Where all bytes are ASCII, every cut between them is valid
UTF-8, and numpy sees that several times as fast. Where they are not, Arrow decides.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..format.numbers import starts_of
from .nesting import children_of, entries_of

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
