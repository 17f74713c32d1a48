"""What a process that does nothing but deblur may settle for itself; a library may not."""

from __future__ import annotations

import ctypes
from contextlib import suppress

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Options of glibc's mallopt."""


def keep_memory() -> None:
    """Let freed memory stay with this process: on a CPU, fresh pages for every layer cost a fifth of the speed.

    It works with glibc, and does nothing elsewhere.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            libc.mallopt(option, 2**31 - 1)
