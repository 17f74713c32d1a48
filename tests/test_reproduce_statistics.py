"""The statistics of a reproduction against naive versions and an oracle, and made-up scores with known verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pahs.reproduce.claims import CLAIMS, Claim, minus, same
from pahs.reproduce.paper import paper
from pahs.reproduce.statistics import bootstrap, estimate, holm, t_probability, t_quantile
from pahs.reproduce.verdicts import Scores, judge, table


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30])
def test_students_t_is_scipys(freedom: int) -> None:
    for t in (0.0, 0.3, 1.0, 2.5, 12.0):
        assert t_probability(t, freedom) == pytest.approx(stats.t.cdf(t, freedom), abs=1e-12)
    for probability in (0.6, 0.95, 0.975, 0.999):
        assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-9)


def test_bootstrap_draws_seeds_and_clips_anew() -> None:
    d = np.random.default_rng(1).normal(0.1, 1, (4, 6))
    fast = bootstrap(d, 400, seed=3)
    random = np.random.default_rng(3)
    rows = random.multinomial(4, [1 / 4] * 4, size=400)
    columns = random.multinomial(6, [1 / 6] * 6, size=400)
    for draw in range(400):
        total = 0.0
        for s in range(4):
            for k in range(6):
                total += rows[draw, s] * columns[draw, k] * d[s, k]
        assert fast[draw] == pytest.approx(total / 24)
    naive = np.random.default_rng(9)
    means = [d[naive.integers(4, size=4)][:, naive.integers(6, size=6)].mean() for _ in range(4000)]
    assert np.std(bootstrap(d)) == pytest.approx(np.std(means), rel=0.06)


def test_the_interval_is_the_wider_of_both() -> None:
    random = np.random.default_rng(0)
    clips_differ = random.normal(0, 1, (1, 30)) + np.zeros((5, 1))
    found = estimate(clips_differ)
    assert found.spread == pytest.approx(0, abs=1e-12) and found.half > 0.2, (
        "few clips are a doubt of their own"
    )
    seeds_differ = np.array([[0.0], [1.0], [2.0]]) + np.zeros((1, 30))
    found = estimate(seeds_differ)
    assert found.half == pytest.approx(stats.t.ppf(0.975, 2) / np.sqrt(3))
    assert found.p == pytest.approx(stats.ttest_1samp([0, 1, 2], 0).pvalue)
    assert estimate(np.ones((1, 5))).low == -np.inf, "one seed says nothing"


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []


def made_up(**gains: tuple[float, float]) -> dict[str, dict[int, Scores]]:
    """Arms by name: (PSNR after 100 steps, PSNR at the end), for five seeds and eight clips with a little noise."""
    random = np.random.default_rng(4)
    found: dict[str, dict[int, Scores]] = {}
    clips = random.normal(28, 2, 8)
    for arm, (early, late) in gains.items():
        found[arm] = {}
        for seed in range(5):
            noise = random.normal(0, 0.01) + random.normal(0, 0.003, 8)
            metrics = {
                "psnr@100": tuple(clips + early + noise),
                "psnr@200": tuple(clips + late + noise),
                "psnr": tuple(clips + late + noise),
            }
            found[arm][seed] = Scores(arm, seed, "", 1, metrics)
    return found


SCORES = made_up(
    zero=(0, 0),
    better=(0.1, 0.5),
    worse=(-0.2, -0.5),
    catching=(-0.9, -0.5),
    equal=(0, 0.001),
    half=(0, 0.03),
)


@pytest.mark.parametrize(
    ("contrasts", "verdict"),
    [
        ((minus("better", "zero"),), "confirmed"),
        ((minus("worse", "zero"),), "refuted"),
        ((minus("catching", "zero"),), "refuted so far"),
        ((replace(minus("equal", "zero"), margin=0.04),), "no effect here"),
        ((same("equal", "zero", 0.0, 0.05),), "confirmed"),
        ((same("better", "zero", 0.0, 0.05),), "refuted"),
        ((minus("better", "zero"), minus("better", "missing")), "not run"),
        ((minus("better", "zero"), minus("worse", "zero")), "refuted"),
        ((minus("better", "zero"), replace(minus("equal", "zero"), margin=0.04)), "confirmed in part"),
        ((same("equal", "zero", 0.0, 0.05), replace(minus("equal", "zero"), margin=0.04)), "open"),
        ((minus("better", "zero"), minus("worse", "zero", ours=True)), "confirmed"),
        ((minus("better", "zero"), minus("better", "worse"), minus("zero", "worse")), "confirmed"),
    ],
)
def test_made_up_scores_give_the_known_verdict(contrasts: tuple, verdict: str) -> None:
    assert judge(Claim("X", "", contrasts), SCORES).verdict == verdict


def test_noise_alone_stays_open() -> None:
    random = np.random.default_rng(2)
    noisy = {
        arm: {s: Scores(arm, s, "", 1, {"psnr": tuple(random.normal(0, 1, 8))}) for s in range(5)}
        for arm in "ab"
    }
    assert judge(Claim("X", "", (minus("a", "b"),)), noisy).verdict == "open"


def test_only_seeds_that_all_arms_have_are_compared() -> None:
    scores = {arm: dict(runs) for arm, runs in made_up(a=(0, 0), b=(0, 1)).items()}
    del scores["a"][1], scores["b"][3]
    d = table(scores, ((1, "b", "psnr"), (-1, "a", "psnr")))
    assert d is not None and d.shape == (3, 8)
    assert d.mean() == pytest.approx(1, abs=0.05)


def test_the_papers_differences_are_those_of_its_tables() -> None:
    """Contrasts between two arms of one table, recomputed from the printed values."""
    rows = {f"{way}{n}": (n, f"{name}_psnr") for way, name in (("U", "uni"), ("B", "bi")) for n in range(4)}
    printed = paper().tables["tab:cross_analysis"]
    value = {arm: printed.value(row, column) for arm, (row, column) in rows.items()}
    value |= {arm: paper().tables["tab:snla"].value(n, "psnr") for n, arm in ((1, "NL"),)}
    value |= {"SE": paper().tables["sub_tab:snla_ablation"].value(0, "psnr")}
    value |= {arm: paper().tables["tab:pprnnupdate"].value(n, "psnr") for n, arm in ((1, "IL"), (2, "IB"))}
    order = paper().tables["sup_tab:pprnn_ablation"]
    value |= {f"R{n}": order.value(2 * n - 2, "psnr") for n in (1, 2, 3, 4)}
    value |= {f"N{n}": order.value(2 * n - 1, "psnr") for n in (1, 2, 3)}
    plugged = paper().tables["tab:compatibility"]
    for n, arm in enumerate(("lstm", "ovd", "ifirnn", "stfan")):
        value |= {arm: plugged.value(n, "baseline_psnr"), f"{arm}+": plugged.value(n, "pahs_psnr")}
    checked = 0
    for claim in CLAIMS[:9] + CLAIMS[10:11]:
        for contrast in claim.contrasts:
            if contrast.paper is not None:
                found = sum(weight * value[arm] for weight, arm, _ in contrast.terms)
                assert contrast.paper == pytest.approx(found, abs=0.006), contrast.name
                checked += 1
    assert checked == 27
