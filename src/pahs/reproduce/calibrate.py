"""How many steps fit into the minutes that there are, and whether arms train faster at the same time.

Timed on random weights and thrown away, after a warm-up: the first process on a machine pays for what all use later.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pahs.progress import say
from pahs.reproduce.group import Group
from pahs.reproduce.material import Material, recipe_of
from pahs.reproduce.measure import along, measure
from pahs.reproduce.plan import Arm, Unit
from pahs.reproduce.record import Calibration
from pahs.reproduce.run import machine_name
from pahs.training.setup import make_model

AT_ONCE = 6
"""Arms whose training at the same time is compared with one after the other. On an H200 a step of the core's 12 arms
takes 270.9 ms one by one, 158.5 by fours, 149.7 by sixes and 142.5 all at once."""
WORTH = 0.95
"""Arms train at the same time if that takes at most this fraction: all of a group begin and end together."""
WARM_UP, FEW, ROUND = 10, 20, 10
"""Steps before the clock starts; steps of the arms beyond those; the chosen number is a multiple of ROUND."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one arm, trained alone."""

    step: float
    fixed: float
    """Preparing the step, and all measuring."""


def calibrate(
    material: Material, units: Sequence[Unit], minutes: float, at_once: int = AT_ONCE
) -> Calibration:
    """Choose the steps with which these trainings take so many minutes, and how many arms train at the same time."""
    began, scale = time.monotonic(), material.scale
    arms = list({unit.arm.name: unit.arm for unit in units}.values())
    first = spread([arm for arm in arms if not arm.continues] or arms, at_once)
    costs, gain = compare(material, first, max(2, scale.warmup))
    some = max(cost.fixed for cost in costs.values())
    for arm in arms:
        if arm.name not in costs:
            costs[arm.name] = alone(material, arm, min(FEW, max(2, scale.warmup)), some)
    together, gain = (len(first), gain) if len(first) > 1 and gain < WORTH else (1, 1.0)
    # Arms that are trained on make half as many steps: see `scales.with_steps`.
    rates = [costs[u.arm.name].step * gain * (0.5 if u.arm.continues else 1.0) for u in units]
    fixed = sum(costs[u.arm.name].fixed for u in units)
    chosen = choose(60 * minutes, fixed, sum(rates), max(1, scale.warmup))
    seconds = {
        u.arm.name: round(costs[u.arm.name].fixed + rate * chosen, 2)
        for u, rate in zip(units, rates, strict=True)
    }
    total = (fixed + sum(rates) * chosen) / 60
    say(
        f"{chosen} steps, {together} at the same time: {len(units)} trainings take {total:.1f} minutes "
        f"(asked for: {minutes:g}); calibrating took {(time.monotonic() - began) / 60:.1f}"
    )
    return Calibration(chosen, together, round(gain, 4), seconds, machine_name(material))


def choose(seconds: float, fixed: float, a_step: float, least: int) -> int:
    """The most steps that fit, and at least the warm-up of the learning rate."""
    steps = int(max(0.0, seconds - fixed) / a_step)
    return max(least, steps // ROUND * ROUND if steps > ROUND else steps)


def spread(arms: Sequence[Arm], count: int) -> list[Arm]:
    """So many arms from the whole list, light and heavy ones."""
    count = min(count, len(arms))
    return [arms[k * len(arms) // count] for k in range(count)]


def compare(material: Material, arms: Sequence[Arm], steps: int) -> tuple[dict[str, Cost], float]:
    """Time some arms alone and at the same time, in one process and after a warm-up.

    Returns their costs, and the time of a step at the same time as a fraction of that one after the other.
    """
    single, both, spent = race(material, arms, steps)
    say(
        f"{', '.join(arm.name for arm in arms)}: a step of each takes {1000 * sum(single) / steps:.1f} ms one after "
        f"the other, {1000 * both / steps:.1f} ms at the same time"
    )
    _, preparing = prepared(material, arms)  # once more, now that all kernels are there
    return {
        arm.name: Cost(seconds / steps, preparing / len(arms) + own)
        for arm, seconds, own in zip(arms, single, spent, strict=True)
    }, both / sum(single)


def race(material: Material, arms: Sequence[Arm], steps: int) -> tuple[list[float], float, list[float]]:
    """Seconds of some steps of each arm alone, of all at the same time, and of measuring each."""
    group, _ = prepared(material, arms)
    timed(group, WARM_UP)
    for k in range(len(arms)):
        timed(group, 1, k)
    # One after the other in between, so that a machine that slows down harms both alike.
    both = timed(group, steps // 2)
    single = [timed(group, steps, k) for k in range(len(arms))]
    both += timed(group, steps - steps // 2)
    measuring(material, group, arms[0], 0)  # makes the clips, chooses kernels
    return single, both, [measuring(material, group, arm, k) for k, arm in enumerate(arms)]


def alone(material: Material, arm: Arm, steps: int, fixed: float) -> Cost:
    """Time one more arm; what is measured on it beyond PSNR is timed too."""
    group, preparing = prepared(material, [arm])
    timed(group, 3)
    took = timed(group, steps)
    own = measuring(material, group, arm, 0) if arm.extras else 0.0
    return Cost(took / steps, max(fixed, preparing + own))


def prepared(material: Material, arms: Sequence[Arm]) -> tuple[Group, float]:
    """Arms with random weights, ready to run, and the seconds that took."""
    began = time.monotonic()
    units = [Unit(arm, 0) for arm in arms]
    models = [
        make_model(recipe_of(unit, material.scale, material.folder)).to(material.device) for unit in units
    ]
    group = Group(units, models, material)
    group.prepare()
    group.settle()
    return group, time.monotonic() - began


def timed(group: Group, steps: int, alone: int | None = None) -> float:
    """Seconds of some steps, of all arms or of one."""
    group.settle()
    began = time.monotonic()
    for number in range(steps):
        group.advance(number, alone)
    group.settle()
    return time.monotonic() - began


def measuring(material: Material, group: Group, arm: Arm, number: int) -> float:
    """Seconds of everything that is measured on an arm, during its training and after it."""
    began = time.monotonic()
    model = group.models[number].eval()
    for _ in (material.scale.curve_on if arm.continues else material.scale.curve)[1:]:
        along(arm, model, material)
    measure(arm, model, material)
    group.settle()
    model.train()
    return time.monotonic() - began
