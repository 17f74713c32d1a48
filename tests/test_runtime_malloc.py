"""What the command line settles for its own process."""

import platform
import subprocess
import sys

import pytest

ALLOCATE = """
import resource, torch
{prepare}
for _ in range(60):
    torch.ones(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def page_faults(prepare: str) -> int:
    child = subprocess.run(
        [sys.executable, "-c", ALLOCATE.format(prepare=prepare)], capture_output=True, check=True, text=True
    )
    return int(child.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_used_again() -> None:
    """60 tensors of 64 MiB, one after the other: some may need pages of their own, most do not."""
    before = page_faults("pass")
    after = page_faults("from pahs.runtime.malloc import keep_memory; keep_memory()")
    assert after < before / 2
