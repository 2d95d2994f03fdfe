"""The ``where`` of a query as its tasks get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from storage_core.predicate.bound import Bound


class QueryWhere(NamedTuple):
    """A bound predicate, and the columns of typed topics that it needs, with their types in it."""

    bound: Bound
    columns: pa.Schema
