"""Whole training runs: what they leave behind, how they end, and that a kill changes nothing."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pahs.benchmarks.training_step import Timing, line
from pahs.cli import main
from pahs.errors import PahsError
from pahs.runtime import weights
from pahs.train import train
from pahs.training.checkpoint import read_checkpoint, write_checkpoint
from pahs.training.logbook import Logbook, Ticker
from pahs.training.recipe_file import load_recipe

TINY = """
[model]
preset = "pahs-t"
config = { width = 9, refine = { ping_pongs = 1 } }
[data]
frames = 2
size = 32
textures = 2
synthesis = { sub_frames = 3, objects = [0, 1] }
[optim]
lr = 1e-3
clip = 1.0
ema = 0.9
[schedule]
warmup_steps = 2
[train]
batch = 2
steps = 4
log_steps = 2
report_seconds = 0.0
device = "cpu"
[validation]
every = 0
clips = 2
frames = 2
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of four steps."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.toml").write_text(TINY)
    train(folder / "tiny.toml", ["validation.every=2"], out=folder / "out")
    return folder / "out"


def metrics(out: Path) -> list[dict[str, float]]:
    return [json.loads(row) for row in (out / "metrics.jsonl").read_text().splitlines()]


def python(*arguments: str | Path) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def test_a_run_leaves_weights_metrics_samples_and_its_recipe(trained: Path) -> None:
    about = weights.describe(trained / "weights.safetensors")
    assert about.metadata["steps"] == "4" and "[schedule]" in about.metadata["recipe"]
    assert float(about.metadata["psnr"]) > 10 and float(about.metadata["minutes"]) >= 0
    assert weights.load(trained / "best.safetensors")(torch.rand(1, 2, 3, 32, 32)).shape == (1, 2, 3, 32, 32)
    rows = metrics(trained)
    assert [row["step"] for row in rows] == [2, 2, 4, 4]
    assert {"loss", "lr", "gradient_norm", "skipped", "seconds_per_step", "minutes"} < rows[0].keys()
    assert rows[3]["psnr_in"] > 10 and f"{rows[3]['psnr_out']:.4f}" == about.metadata["psnr"]
    sample = Image.open(trained / "samples" / "0000004_000.png")
    assert sample.size == (3 * 32, 32)
    assert load_recipe(trained / "recipe.toml").train.steps == 4
    assert not list(trained.glob(".*")), "nothing half-written is left"


def test_the_final_weights_are_the_averaged_ones(trained: Path) -> None:
    checkpoint = read_checkpoint(trained / "last.ckpt")
    saved = load_file(trained / "weights.safetensors")
    for name, average in zip(checkpoint.model, checkpoint.ema, strict=True):
        assert torch.equal(saved[name], average)
    assert any(not torch.equal(saved[name], value) for name, value in checkpoint.model.items())


def test_a_finished_run_is_not_overwritten_and_can_be_prolonged(
    trained: Path, recipe: Path, tmp_path: Path
) -> None:
    with pytest.raises(PahsError, match="--resume"):
        train(recipe, out=trained)
    before = (trained / "metrics.jsonl").read_text()
    with pytest.raises(PahsError, match=r"model\.config\.width"):
        train(recipe, ["model.config.width=12"], resume=True, out=trained)
    assert (trained / "metrics.jsonl").read_text() == before
    longer = shutil.copytree(trained, tmp_path / "longer")
    train(recipe, ["train.steps=6"], resume=True, out=longer)
    assert read_checkpoint(longer / "last.ckpt").step == 6
    assert weights.describe(longer / "weights.safetensors").metadata["steps"] == "6"


def test_averaging_may_begin_and_end_on_resuming(trained: Path, recipe: Path, tmp_path: Path) -> None:
    without = shutil.copytree(trained, tmp_path / "without")
    train(recipe, ["train.steps=5", "optim.ema=0.0"], resume=True, out=without)
    checkpoint = read_checkpoint(without / "last.ckpt")
    assert checkpoint.step == 5 and checkpoint.ema == []
    weighed = load_file(without / "weights.safetensors")
    assert all(torch.equal(weighed[name], value) for name, value in checkpoint.model.items())
    train(recipe, ["train.steps=6", "optim.lr=1e-12"], resume=True, out=without)
    later = read_checkpoint(without / "last.ckpt")
    assert len(later.ema) == len(later.model)
    for average, value in zip(later.ema, later.model.values(), strict=True):
        assert torch.allclose(average, value, atol=1e-6), "it starts at the weights, not at the first ones"


def test_a_resumed_run_uses_and_keeps_the_new_recipe(trained: Path, recipe: Path, tmp_path: Path) -> None:
    out = shutil.copytree(trained, tmp_path / "out")
    sets = ["train.steps=5", "optim.betas=[0.5, 0.9]", "optim.eps=1e-6", "optim.weight_decay=0.25"]
    train(recipe, [*sets, "optim.name=adamw"], resume=True, out=out)
    checkpoint = read_checkpoint(out / "last.ckpt")
    (group,) = checkpoint.optimizer["param_groups"]
    assert (tuple(group["betas"]), group["eps"], group["weight_decay"]) == ((0.5, 0.9), 1e-6, 0.25)
    assert group["decoupled_weight_decay"], "adamw, where the checkpoint came from adam"
    assert (out / "recipe.toml").read_text() == checkpoint.recipe
    assert load_recipe(out / "recipe.toml").optim.betas == (0.5, 0.9)


def test_a_run_killed_and_resumed_ends_with_the_same_weights(recipe: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle, after a checkpoint at an arbitrary step; bit for bit the same in the end."""
    sets = ["--set", "train.steps=40", "--set", "train.checkpoint_steps=3"]
    whole = subprocess.Popen(
        python("-m", "pahs", "train", recipe, *sets, "--output", tmp_path / "whole"),
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    killed = python("-m", "pahs", "train", recipe, *sets, "--output", tmp_path / "killed")
    process = subprocess.Popen(killed, env=ENVIRONMENT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not (tmp_path / "killed" / "last.ckpt").exists():
        assert process.poll() is None, "the run ended before its first checkpoint"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert whole.wait() == 0
    assert not (tmp_path / "killed" / "weights.safetensors").exists()
    reached = read_checkpoint(tmp_path / "killed" / "last.ckpt").step
    assert 0 < reached < 40 and reached % 3 == 0

    done = subprocess.run([*killed, "--resume"], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"resuming at step {reached}" in done.stderr
    a, b = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "killed"))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    first, second = (read_checkpoint(tmp_path / name / "last.ckpt") for name in ("whole", "killed"))
    assert all(torch.equal(first.model[name], second.model[name]) for name in first.model)
    steps = [[row["step"] for row in metrics(tmp_path / name)] for name in ("whole", "killed")]
    assert steps[0] == steps[1], "the curve has every step once"


def test_an_interrupted_run_says_how_to_go_on(recipe: Path, tmp_path: Path) -> None:
    run = python("-m", "pahs", "train", recipe, "--set", "train.steps=100000", "-o", tmp_path / "run")
    run += ["--set", "train.checkpoint_steps=1"]
    process = subprocess.Popen(run, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "last.ckpt").exists():
        assert process.poll() is None, "the run ended before its first checkpoint"
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.splitlines()[-1].startswith("interrupted: ") and "--resume" in error
    assert "Traceback" not in error


def test_two_processes_train_like_one_with_the_whole_batch(recipe: Path, tmp_path: Path) -> None:
    """With warmed-up states; tests/test_nodes.py has the same without, on two machines."""
    sets = ["--set", "train.batch=4", "--set", "data.streams=2", "--set", "train.max_minutes=30"]
    sets += ["--set", "schedule.kind=constant", "--set", "validation.clips=3"]
    sets += ["--set", "states.warm_passes=1"]
    arguments = ["-m", "pahs", "train", recipe, *sets, "--output"]
    launcher = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    for name, start in (("one", python()), ("two", launcher)):
        command_line = [*start, *map(str, arguments), str(tmp_path / name)]
        done = subprocess.run(command_line, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    a, b = (load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    assert all((a[name] - b[name]).abs().max() < 1e-5 for name in a)
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert one[-1]["psnr_out"] == pytest.approx(two[-1]["psnr_out"], abs=1e-3)
    assert one[0]["loss"] == pytest.approx(two[0]["loss"], rel=1e-4)
    start = load_file(tmp_path / "one" / "best.safetensors")
    assert start.keys() == a.keys()


def test_a_time_budget_ends_the_run_and_its_schedule(recipe: Path, tmp_path: Path) -> None:
    train(recipe, ["train.steps=0", "train.max_minutes=0.03", "train.log_steps=1"], out=tmp_path / "out")
    rows = [row for row in metrics(tmp_path / "out") if "lr" in row]
    assert rows and (tmp_path / "out" / "weights.safetensors").exists()
    rates = [row["lr"] for row in rows[3:]]
    assert rates == sorted(rates, reverse=True)


def test_a_run_that_explodes_stops_and_keeps_its_checkpoint(recipe: Path, tmp_path: Path) -> None:
    sets = ["train.steps=50", "train.max_bad_steps=4", "train.checkpoint_steps=1", "optim.clip=0.0"]
    with pytest.raises(PahsError, match=r"in a row were not finite.*last\.ckpt") as caught:
        train(recipe, [*sets, "optim.lr=1e25", "optim.ema=0.0"], out=tmp_path / "out")
    assert "\n" not in str(caught.value) and "optim.lr" in str(caught.value)
    kept = read_checkpoint(tmp_path / "out" / "last.ckpt")
    assert all(torch.isfinite(value).all() for value in kept.model.values())
    assert not (tmp_path / "out" / "weights.safetensors").exists()


def test_a_stage_starts_from_the_weights_of_another(trained: Path, recipe: Path, tmp_path: Path) -> None:
    start = f"train.init_from={trained / 'weights.safetensors'}"
    train(recipe, [start, "train.steps=1", "optim.lr=1e-12", "optim.ema=0.0"], out=tmp_path / "out")
    a, b = load_file(trained / "weights.safetensors"), load_file(tmp_path / "out" / "weights.safetensors")
    assert all(torch.allclose(a[name], b[name], atol=1e-9) for name in a)
    with pytest.raises(PahsError, match=r"train\.init_from"):
        train(recipe, [start, "model.config.width=6"], out=tmp_path / "other")


def test_training_on_a_dataset_counts_epochs(recipe: Path, tmp_path: Path) -> None:
    from test_train_sources import pairs

    root = pairs(tmp_path / "data")
    sets = ["data.kind=dataset", f"data.root={root}", "data.workers=0", f"validation.root={root}"]
    sets += ["train.steps=0", "train.epochs=2", "schedule.kind=milestones", "schedule.milestones=[1]"]
    train(
        recipe, [*sets, "train.batch=3", "train.log_steps=1", "schedule.warmup_steps=0"], out=tmp_path / "out"
    )
    rates = [row["lr"] for row in metrics(tmp_path / "out") if "lr" in row]
    assert rates == [1e-3] * 3 + [5e-4] * 3
    with pytest.raises(PahsError, match=r"train\.epochs"):
        train(recipe, ["train.steps=0", "train.epochs=2"], out=tmp_path / "other")


def test_a_checkpoint_that_does_not_fit_the_disk_leaves_the_last_one(trained: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(trained / "last.ckpt")
    path = tmp_path / "last.ckpt"
    write_checkpoint(checkpoint, path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(PahsError, match="intact") as caught:
            write_checkpoint(checkpoint, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_metrics_that_do_not_fit_the_disk_are_an_error_of_one_line(tmp_path: Path) -> None:
    book = Logbook(tmp_path, 0, active=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        with pytest.raises(PahsError, match="free space"):
            book.write(1, {"loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_damaged_checkpoint_is_named(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "last.ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(PahsError, match=r"last\.ckpt"):
        train(recipe, resume=True, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("sets", "told"),
    [(["train.step=captured"], "captured"), (["train.device=cuda"], "cuda"), (["train.bacth=1"], "batch")],
)
def test_the_command_says_what_is_wrong_and_exits_with_2(
    recipe: Path, tmp_path: Path, sets: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available() and told == "cuda":
        pytest.skip("there is a GPU here")
    assert (
        main(
            [
                "train",
                str(recipe),
                "--output",
                str(tmp_path / "out"),
                *[x for s in sets for x in ("--set", s)],
            ]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert told in error and error.startswith("error: ") and error.count("\n") == 1


def test_the_command_trains_and_reports(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert (
        main(["train", str(recipe), "--output", str(out), "--resume", "--set", "train.precision=bf16"]) == 0
    )
    told = capsys.readouterr()
    assert told.out.strip() == str(out / "weights.safetensors")
    assert "fp32" in told.err and "ms/step" in told.err and "PSNR" in told.err
    assert f"{out}: holds no checkpoint to resume from; starting from the first step" in told.err


def test_steps_are_timed(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = tmp_path / "step.json"
    assert main(["bench", "--training-step", str(recipe), "--steps", "3", "--json", str(numbers)]) == 0
    content = json.loads(numbers.read_text())
    assert content["steps"][0]["name"] == "eager" and len(content["steps"][0]["losses"]) == 3
    assert "ms/step" in capsys.readouterr().out
    failed = Timing("captured", 0, 0, 0, [], [], "RuntimeError: why")
    assert "failed: RuntimeError: why" in line(failed, failed)


def test_a_logbook_drops_what_will_be_made_again(tmp_path: Path) -> None:
    book = Logbook(tmp_path, 0, active=True)
    for step in (1, 2, 3):
        book.write(step, {"loss": float("nan")})
    book.close()
    Logbook(tmp_path, 2, active=True).close()
    assert metrics(tmp_path) == [{"step": 1, "loss": None}, {"step": 2, "loss": None}]
    Logbook(tmp_path / "none", 0, active=False).write(1, {"loss": 1.0})
    assert not (tmp_path / "none").exists()


def test_a_terminal_gets_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    ticker = Ticker(Logbook(tmp_path, 0, active=True), shown.append, 0.0, total=100)  # type: ignore[arg-type]
    ticker.terminal = True
    for step in range(4):
        ticker.tick(step, step / 4, 0.1, 1e-3)
    assert sum(shown) == 75
