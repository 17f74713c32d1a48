"""Settings of the memory allocator that the command line makes for its process; a library must not make them."""

from __future__ import annotations

import ctypes
from contextlib import suppress

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Options of glibc's mallopt."""


def keep_memory() -> None:
    """Keep freed memory in this process: on a CPU, fresh pages for every layer cost a fifth of the speed.

    This works with glibc and does nothing with other C libraries.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            libc.mallopt(option, 2**31 - 1)
