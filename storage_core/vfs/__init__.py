"""The I/O seam: what the engine may ask of files, and the backend for real files."""

from .base import Buffer, FileStat, OpenMode, Vfs
from .posix import PosixVfs, read_outside

__all__ = ["Buffer", "FileStat", "OpenMode", "PosixVfs", "Vfs", "read_outside"]
