"""How far a run has come, and the learning rate of its next step.

A run ends after a number of steps, or of minutes, or whichever comes first. One number says how far it is: 0 at the
first step, 1 at the end. The rate follows that number, so the schedule of a run with a time budget ends with the run.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from pahs.training.recipe import ScheduleSection, TrainSection


def learning_rate(schedule: ScheduleSection, peak: float, step: int, done: float, length: float) -> float:
    """The rate of step `step` (from 0). `done` is in [0, 1]; `length` is the run's in the unit of milestones."""
    if schedule.kind == "cosine":
        shape = schedule.final + (1 - schedule.final) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    elif schedule.kind == "milestones":
        # The tolerance keeps a milestone from slipping by one step when done * length is rounded down.
        passed = sum(done * length >= milestone - 1e-6 for milestone in schedule.milestones)
        shape = schedule.factor**passed
    else:
        shape = 1.0
    warm = min(1.0, (step + 1) / schedule.warmup_steps) if schedule.warmup_steps else 1.0
    return peak * shape * warm


def ema_decay(decay: float, step: int) -> float:
    """The decay of the average; it is lower in the first steps, so that the initial weights are soon forgotten."""
    return min(decay, (1 + step) / (10 + step))


def total_steps(train: TrainSection, steps_per_epoch: int) -> int:
    """The run's length in steps; 0: only minutes limit it."""
    return train.steps or train.epochs * steps_per_epoch


@dataclass
class Clock:
    """Seconds spent on a run, over all of its resumptions."""

    before: float = 0.0
    """Seconds spent before this process started, from the checkpoint."""
    preparing: float = 0.0
    """Seconds of all that went into compiling and capturing, in which no step was made."""
    started: float = field(default_factory=time.monotonic)

    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.started

    def prepared(self) -> None:
        """Call when the first step of this process is ready to run."""
        self.preparing += time.monotonic() - self.started

    def spent(self, max_minutes: float) -> float:
        """Fraction of the time for steps that has passed; 0 where there is no limit."""
        if not max_minutes:
            return 0.0
        budget = max(max_minutes * 60 - self.preparing, 1e-3)
        return (self.elapsed() - self.preparing) / budget


def progress(step: int, steps: int, spent: float) -> float:
    """How far the run has come, in [0, 1], measured to the nearer of its two ends."""
    return min(1.0, max(step / steps if steps else 0.0, spent))
