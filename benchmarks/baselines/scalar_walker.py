"""A walker of length-prefixed records in C: what a broker written in a compiled language does.

It follows the lengths one by one and copies each payload to memory of its own. It is compiled when
it is first asked for; without a compiler there is none.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

_SOURCE = r"""
#include <stdlib.h>
#include <string.h>

enum { KEPT = 4096 };

long walk(const unsigned char *bytes, long size, long header)
{
    static void *kept[KEPT];
    long position = 0, count = 0;
    while (position + header <= size) {
        const unsigned char *at = bytes + position;
        long length = (long) at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
        if (position + header + length > size)
            break;
        void *payload = malloc(length ? length : 1);
        memcpy(payload, at + header, length);
        free(kept[count % KEPT]);
        kept[count % KEPT] = payload;
        position += header + length;
        count++;
    }
    return count;
}
"""


def compiled(directory: Path) -> Callable[[memoryview, int], int] | None:
    """``walk(bytes, header bytes)``, which returns the number of records; None without ``cc``."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = directory / "walker.c", directory / "walker.so"
    source.write_text(_SOURCE)
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).walk
    function.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    function.restype = ctypes.c_long

    def walk(content: memoryview, header: int) -> int:
        address = np.frombuffer(content, dtype=np.uint8).ctypes.data
        found: int = function(address, len(content), header)
        return found

    return walk
