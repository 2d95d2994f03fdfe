"""The I/O seam: what the engine may ask of files, and the backend that really does it."""

from .base import Buffer, FileStat, OpenMode, Vfs
from .posix import PosixVfs

__all__ = ["Buffer", "FileStat", "OpenMode", "PosixVfs", "Vfs"]
