"""How sure a difference between two arms is.

`d[s, k]` is the difference on evaluation clip k between two networks trained with seed s: the same batches, and the
same first weights wherever both have a parameter of one name and shape. The estimate is the mean of d. Its interval is
the wider of two: a bootstrap over seeds and clips at once, and Student's t over the means of the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
"""(seeds, clips)."""

LEVEL = 0.95
DRAWS = 10_000


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float
    p: float
    """Two-sided probability of such a mean if there were no difference, by Student's t; 1 for one seed."""
    spread: float
    """Standard deviation of the seeds' means; 0 for one seed."""
    seeds: int
    clips: int

    @property
    def half(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2


def estimate(d: Table) -> Estimate:
    """The mean of d and its interval; one seed gives an interval without limits."""
    seeds, clips = d.shape
    mean, of_seeds = float(d.mean()), d.mean(1)
    if seeds < 2:
        return Estimate(mean, -math.inf, math.inf, 1.0, 0.0, seeds, clips)
    spread = float(of_seeds.std(ddof=1))
    error = spread / math.sqrt(seeds)
    half = t_quantile(0.5 + LEVEL / 2, seeds - 1) * error
    means = bootstrap(d)
    low, high = (float(np.quantile(means, q)) for q in (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    p = 2 * (1 - t_probability(abs(mean) / error, seeds - 1)) if error else float(mean == 0)
    return Estimate(mean, min(low, mean - half), max(high, mean + half), p, spread, seeds, clips)


def bootstrap(d: Table, draws: int = DRAWS, seed: int = 0) -> NDArray[np.float64]:
    """Means of d with its seeds and its clips drawn anew, with repetition, as rows and columns."""
    seeds, clips = d.shape
    random = np.random.default_rng(seed)
    rows = random.multinomial(seeds, [1 / seeds] * seeds, size=draws)
    columns = random.multinomial(clips, [1 / clips] * clips, size=draws)
    means: NDArray[np.float64] = np.einsum("ns,sk,nk->n", rows, d, columns, optimize=True) / (seeds * clips)
    return means


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted probabilities of several contrasts that belong to one claim."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = largest
    return adjusted


def t_probability(t: float, freedom: int) -> float:
    """P(T <= t) of Student's t, in closed form for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    theta = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    term, total = 1.0, 0.0
    if freedom % 2:
        term = cosine
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine**2 * (2 * k) / (2 * k + 1)
        inside = 2 / math.pi * (theta + sine * total)
    else:
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cosine**2 * (2 * k - 1) / (2 * k)
        inside = sine * total
    return 0.5 + inside / 2


def t_quantile(probability: float, freedom: int) -> float:
    """The t below which Student's t lies with this probability, at least one half."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < probability else (low, middle)
    return high
