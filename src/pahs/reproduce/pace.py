"""How long trainings take, so that `--minutes` begins none that would not end in time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pahs.reproduce import store
from pahs.reproduce.plan import Unit

RESERVE = 1.15
"""Arms begin only if so many times the seconds that they are expected to take are left."""
UNSEEN = 1.5
"""An arm that was never trained counts as so many times the slowest: light arms come first, heavy ones later."""
YOUNG = 600.0
"""Seconds after which a process is taken for one that does other things too, such as a notebook."""


@dataclass(frozen=True)
class Pace:
    """Seconds that a training of each arm takes on this machine, as far as they are known."""

    seconds: Mapping[str, float]

    def of(self, units: Sequence[Unit]) -> float | None:
        """Expected seconds of some arms one after the other, or together; None: nothing is known."""
        if not self.seconds:
            return None
        slowest = max(self.seconds.values())
        return RESERVE * sum(self.seconds.get(unit.arm.name, UNSEEN * slowest) for unit in units)


def known_pace(out: Path, machine: str, calibrated: Mapping[str, float]) -> Pace:
    """What was calibrated, replaced by what trainings took."""
    return Pace({**calibrated, **store.seconds(out, machine)})


def process_began() -> float:
    """When this process began, on the clock of `time.monotonic`; now, where the system does not say."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        age = 0.0
    return time.monotonic() - (age if 0 < age < YOUNG else 0.0)
