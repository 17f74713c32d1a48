"""A bounded part of the fuzzer: `python -m tests.fuzz --count 5000` and `--kills 100` are the whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def fuzz(*arguments: str) -> str:
    """What the program prints; it fails on any finding."""
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


@pytest.mark.slow
def test_damaged_files_are_restored_or_refused_in_one_line() -> None:
    found = re.match(
        r"(\d+) damaged files: (\d+) done, (\d+) refused; ", fuzz("--count", "9999", "--seconds", "45")
    )
    assert found and int(found[1]) > 100 and int(found[2]) > 10 and int(found[3]) > 10


@pytest.mark.slow
def test_killed_jobs_leave_nothing_that_stays() -> None:
    found = re.match(r"(\d+) kills: ", fuzz("--kills", "99", "--seconds", "20"))
    assert found and int(found[1]) >= 4
