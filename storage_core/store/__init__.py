"""The public ``Store``: reads, maintenance, appends and commits."""
