"""Settings for all tests: one thread per worker, float32, and hypothesis without deadlines on shared machines."""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

from pahs.backends.choose import TORCH, choices, note
from pahs.benchmarks.conditions import tf32
from pahs.runtime.precision import remember

settings.register_profile(
    "pahs", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("pahs")
torch.set_num_threads(1)
# A shell that runs the tests in the background ignores SIGINT, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A cache folder of their own, in which half precision is remembered as no faster: tests compare numbers.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="pahs-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
remember("bfloat16", 1.0)
# In the same way, PyTorch is remembered as what is fastest.
for choice in choices():
    note(choice, 1.0 if choice == TORCH else 9.0)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def plain_float32() -> Iterator[None]:
    """TF32 is a precision of its own; where a test asks for this, float32 means float32 on a GPU too."""
    with tf32(False):
        yield
