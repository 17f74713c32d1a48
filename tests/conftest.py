"""Settings for all tests: one thread per worker, and hypothesis without deadlines on shared machines."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "pahs", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("pahs")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
