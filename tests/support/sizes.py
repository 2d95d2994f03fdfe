"""How much the tests do that repeat themselves: little in ``make quick``, more with more time.

``TORTURE`` names one of the columns below; each figure can be given alone, too, by its name in
capitals after ``TORTURE_``. ``TORTURE_SEED`` starts everything that is drawn by chance.
"""

from __future__ import annotations

import os

_FIGURES = {
    #                      quick, test, torture, torture-long
    "states": (20_000, 20_000, 100_000, 500_000),
    "samples": (12, 12, 24, 40),
    "maintenance_samples": (4, 4, 12, 40),
    "broker_samples": (1, 1, 6, 20),
    "kills": (100, 100, 400, 2_000),
    "handler_kills": (12, 12, 50, 250),
    "fuzz": (50_000, 50_000, 500_000, 5_000_000),
    "machine_examples": (300, 300, 1_000, 5_000),
    "machine_steps": (40, 40, 50, 50),
    "store_examples": (80, 80, 400, 2_000),
    "maintenance_examples": (30, 30, 150, 1_000),
    "object_worlds": (20, 100, 1_000, 10_000),
    "writers": (4, 4, 4, 8),
    "commits": (100, 100, 200, 500),
    "fault_pairs": (0, 0, 2_000, 20_000),
    "spark_rounds": (1, 1, 1, 3),
    "deletion_step": (4, 4, 1, 1),
    "flip_step": (5, 1, 1, 1),
    "quick_deletion_step": (4, 1, 1, 1),
    "examples_percent": (25, 100, 100, 100),
}
_COLUMNS = ("quick", "test", "torture", "torture-long")


def _figure(name: str) -> int:
    column = _COLUMNS.index(os.environ.get("TORTURE", "test"))
    return int(os.environ.get(f"TORTURE_{name.upper()}", _FIGURES[name][column]))


SEED = int(os.environ.get("TORTURE_SEED", "20240917"))
STATES = _figure("states")
SAMPLES = _figure("samples")
MAINTENANCE_SAMPLES = _figure("maintenance_samples")
BROKER_SAMPLES = _figure("broker_samples")
KILLS = _figure("kills")
HANDLER_KILLS = _figure("handler_kills")
FUZZ = _figure("fuzz")
MACHINE_EXAMPLES = _figure("machine_examples")
MACHINE_STEPS = _figure("machine_steps")
STORE_EXAMPLES = _figure("store_examples")
OBJECT_WORLDS = _figure("object_worlds")
MAINTENANCE_EXAMPLES = _figure("maintenance_examples")
WRITERS = _figure("writers")
COMMITS = _figure("commits")
FAULT_PAIRS = _figure("fault_pairs")
SPARK_ROUNDS = _figure("spark_rounds")
PROCESSES = int(os.environ.get("TORTURE_PROCESSES", "2"))
LONG = os.environ.get("TORTURE", "test").startswith("torture")
FOR_HOURS = os.environ.get("TORTURE", "test") == "torture-long"
EVERY_FIGURE = {name: _figure(name) for name in _FIGURES}
DELETION_STEP = _figure("deletion_step")
# No factor in common with 8: so every place in a byte is flipped somewhere.
FLIP_STEP = _figure("flip_step")
QUICK_DELETION_STEP = _figure("quick_deletion_step")


def examples(number: int) -> int:
    """How many examples a test draws where it draws a number of them in ``make test``."""
    return number * _figure("examples_percent") // 100
