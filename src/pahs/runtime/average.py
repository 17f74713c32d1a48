"""The mean of several weights files: of related runs, it is often better than any of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from pahs.errors import PahsError
from pahs.runtime import weights


def average(
    files: Sequence[Path | str],
    output: Path,
    factors: Sequence[float] = (),
    half: bool = False,
    overwrite: bool = False,
) -> None:
    """Write the weighted mean of weights of one configuration; `factors` are divided by their sum, equal by default.

    Whole numbers, such as a normalisation's count of batches, are those of the first file.
    """
    if len(files) < 2:
        raise PahsError("an average needs two weights files or more")
    factors = factors or [1.0] * len(files)
    if len(factors) != len(files):
        raise PahsError(f"--weights has {len(factors)} numbers for {len(files)} files; give one for each")
    if min(factors) < 0 or not 0 < sum(factors) < float("inf"):
        raise PahsError("--weights: use numbers of 0 or more, not all of them 0")
    if output.exists() and not overwrite:
        raise PahsError(f"{output}: exists already; name another file or use --overwrite")
    abouts = [weights.describe(weights.bundled(str(file)) or file) for file in files]
    first = abouts[0]
    for about in abouts[1:]:
        if about.architecture != first.architecture:
            raise PahsError(f"{about.path}: its network is {about.architecture}, not {first.architecture}")
        mine, its = asdict(first.config), asdict(about.config)
        for name in (name for name in mine if mine[name] != its[name]):
            raise PahsError(f"{about.path}: its {name} is {its[name]}, that of {first.path} is {mine[name]}")

    shares = [factor / sum(factors) for factor in factors]
    model = weights.read(first.path)
    sums = {name: shares[0] * x.double() for name, x in model.state_dict().items() if x.is_floating_point()}
    for about, share in zip(abouts[1:], shares[1:], strict=True):
        other = weights.read(about.path).state_dict()
        for name in sums:
            sums[name] += share * other[name].double()
    if not all(torch.isfinite(x).all() for x in sums.values()):
        raise PahsError("the average is not finite; one of the files holds nan or inf")
    model.load_state_dict(sums, strict=False)
    parts = [
        {"file": about.path.name, "sha256": about.metadata["sha256"], "weight": share}
        for about, share in zip(abouts, shares, strict=True)
    ]
    weights.save(model, output, {"average": json.dumps(parts)}, half)
