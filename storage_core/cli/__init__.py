"""The ``cursus`` command: what a person does with a log directory."""

from .entry import main

__all__ = ["main"]
