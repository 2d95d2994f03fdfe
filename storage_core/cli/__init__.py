"""The ``cursus`` command: inspect, write and maintain a log directory."""

from .entry import main

__all__ = ["main"]
