"""Layouts: how one kind of log directory names its files and encodes its records."""

from .base import Chunk, Layout
from .native import NativeLayout

__all__ = ["Chunk", "Layout", "NativeLayout"]
