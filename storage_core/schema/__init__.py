"""The columns of typed topics: schema versions, their evolution, rows, keys."""
