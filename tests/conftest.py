"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Seconds belong to the benchmarks: a busy machine must not fail a property.
settings.register_profile("cursus", deadline=None)
settings.load_profile("cursus")
