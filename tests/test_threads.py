"""A function over many items in threads: order, errors, and interrupts at any moment."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from pahs.data.threads import map_in_threads
from processes import uncovered


def test_results_are_in_the_order_of_their_items() -> None:
    def slow_at_first(number: int) -> int:
        time.sleep(0.02 if number < 4 else 0)
        return number * number

    assert map_in_threads(slow_at_first, range(40), 4) == [n * n for n in range(40)]
    assert map_in_threads(slow_at_first, [], 4) == []


def test_the_first_error_is_raised_and_nothing_more_is_begun() -> None:
    begun: list[int] = []

    def fails(number: int) -> None:
        begun.append(number)
        time.sleep(0.02 if number == 3 else 0.001)
        if number >= 3:
            raise ValueError(f"item {number}")

    with pytest.raises(ValueError, match="item 3"):
        map_in_threads(fails, range(10_000), 4)
    time.sleep(0.05)
    seen = len(begun)
    time.sleep(0.05)
    assert len(begun) == seen < 1000


INTERRUPTS = """
import random, signal, sys, tempfile, threading, time
from pathlib import Path
from PIL import Image
from pahs.data.layouts import open_dataset
from pahs.data.photos import PhotoPool

root = Path(sys.argv[1])
picture = Image.effect_noise((40, 32), 90).convert("RGB")
for folder in ("blur", "sharp"):
    (root / folder).mkdir(parents=True)
    for number in range(20):
        picture.save(root / folder / f"{number}.png")

def interrupt(*_): raise KeyboardInterrupt

def run():
    PhotoPool.load(root, short_side=24, long_side=32)
    open_dataset(root)

run()
signal.signal(signal.SIGALRM, interrupt)
random.seed(0)
interrupted, begin = 0, time.monotonic()
for number in range(1000):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.006))
        run()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    end = time.monotonic() + 10
    while len(sys._current_frames()) > 1:
        if time.monotonic() > end:
            sys.exit(f"interrupt {number}: a thread waits for ever")
        time.sleep(0.0005)
print(interrupted)
"""


def test_an_interrupt_at_any_moment_leaves_no_thread_waiting(tmp_path) -> None:
    arguments = [sys.executable, "-c", INTERRUPTS, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=uncovered())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
