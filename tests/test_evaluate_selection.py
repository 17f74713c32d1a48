"""`pahs evaluate --selection`: gradients are true, and a score that knows something is found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pahs.cli import main
from pahs.data.layouts import open_dataset
from pahs.errors import PahsError
from pahs.evaluation import selection
from pahs.evaluation.selection import DEVIATION, score_selection
from pahs.networks import PAHS
from pahs.progress import Advance
from pahs.runtime import weights
from test_train_sources import pairs
from zoo import build


def network() -> PAHS:
    torch.manual_seed(0)
    model = build("pahs")
    assert isinstance(model, PAHS)
    return model.double()


def mean_psnr(model: PAHS, blurry: torch.Tensor, sharp: torch.Tensor) -> float:
    with torch.no_grad():
        latents, _ = model.propagate(model.extract(blurry), None, blurry.shape[1])
        error = (model.reconstruct(latents) - sharp).square().mean((2, 3, 4))
    return float(-10 * error.log10().mean())


def test_the_gradient_says_what_a_small_change_gains() -> None:
    model = network()
    blurry, sharp = torch.rand(2, 1, 4, 3, 48, 32, dtype=torch.float64).unbind()
    modules = {"forward": model.forward_cell.refiner.snla}
    assert modules["forward"] is not None and modules["forward"].filter is not None
    seen = selection._look(model, modules, blurry, sharp)["forward"]  # type: ignore[arg-type]
    assert seen.selection.shape == (4, 6) and seen.score.std() > 0
    assert (seen.largest >= seen.score).all()
    before, step = mean_psnr(model, blurry, sharp), 1e-4
    last = modules["forward"].filter[-1]
    with torch.no_grad():
        last.bias += step  # of the logit: S_Sel rises by its slope times as much
    slope = seen.selection * (1 - seen.selection)
    expected = float((seen.gradient * slope).sum()) * step
    assert mean_psnr(model, blurry, sharp) - before == pytest.approx(expected, rel=1e-3)


def test_a_score_that_knows_the_gradient_gains_and_noise_does_not() -> None:
    random = torch.Generator().manual_seed(1)
    score = torch.randn(6, 10, 40, generator=random, dtype=torch.float64)
    clips = [selection._Seen(torch.full_like(x, 0.3), x, torch.randn_like(x), 0.01 * x.sign()) for x in score]
    found = selection._judge("module", clips)
    assert found.by_score.mean == pytest.approx(found.by_truth.mean, rel=0.05)
    assert found.by_truth.mean == pytest.approx(DEVIATION * 0.01 * 400)
    assert abs(found.by_largest.mean) < 0.1 * found.by_truth.mean
    assert found.deviation == 0 and found.score_deviation == pytest.approx(1, abs=0.1)


def test_the_command_writes_a_row_for_each_direction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, net, out = pairs(tmp_path / "data"), tmp_path / "net.safetensors", tmp_path / "out.json"
    weights.save(network().float(), net)
    command = ["evaluate", "--selection", "--model", str(net), "--data", str(data)]
    assert main([*command, "--limit", "3", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| forward_cell.refiner.snla |" in printed and "| backward_cell.refiner.snla |" in printed
    modules = json.loads(out.read_text())["modules"]
    assert [module["clips"] for module in modules] == [3, 3]
    assert all(module["by_truth"]["mean"] > abs(module["by_score"]["mean"]) for module in modules)


def test_networks_without_a_selection_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = open_dataset(pairs(tmp_path / "data"))
    with pytest.raises(PahsError, match="no selection"):
        score_selection(build("lstm"), dataset, None, Advance())
    assert main(["evaluate", "--selection"]) == 2
    assert main(["evaluate", "--selection", "--long"]) == 2
    assert "--data is missing" in (said := capsys.readouterr().err) and "choose one" in said
