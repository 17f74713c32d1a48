"""Training, from a recipe to weights: `setup` (arguments) -> `main` (objects) -> `fit` (the loop).

One GPU, or the CPU where there is none:

    python -m pahs.train recipes/bundled.toml --set data.root=photos

One machine with 8 GPUs:

    torchrun --standalone --nproc-per-node 8 -m pahs.train recipes/gopro.toml --set train.batch=8

Two machines with 8 GPUs each, the same command on both but for the rank (0 and 1):

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr HOST0 --master-port 29500 \
        -m pahs.train recipes/gopro.toml --set train.batch=16

`train.batch` is the whole batch, however many processes share it. After a kill, the same command with `--resume`
goes on where the last checkpoint was written.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pahs.errors import PahsError
from pahs.networks import Deblurrer
from pahs.runtime import weights
from pahs.training.checkpoint import write_atomically
from pahs.training.initial import scale_weights
from pahs.training.logbook import Logbook, ticker
from pahs.training.recipe import Recipe
from pahs.training.recipe_file import load_recipe, to_toml
from pahs.training.run import FINAL, Run, assess, due, find_checkpoint, finish, how_far, record, restore, save
from pahs.training.schedule import Clock, ema_decay, learning_rate, total_steps
from pahs.training.sources import Share, open_photos, open_source
from pahs.training.step import CapturedStep, Compiled, EagerStep, Objective, Step, Update, prepare
from pahs.training.validate import open_clips

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def train(
    recipe: str | os.PathLike[str],
    sets: Sequence[str] = (),
    resume: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> Path:
    """Train by a recipe; returns the final weights file. `out` is the run's folder, runs/NAME by default."""
    loaded = load_recipe(recipe, sets)
    return main(setup(loaded), loaded, Path(out or Path("runs") / Path(recipe).stem), resume)


def setup(recipe: Recipe) -> Fabric:
    """The device, the precision and the other processes: everything that depends on the machine."""
    wish = recipe.train
    if wish.device == "cuda" and not torch.cuda.is_available():
        raise PahsError('train.device is "cuda", but this PyTorch sees no CUDA GPU; use "cpu" or "auto"')
    cuda = wish.device != "cpu" and torch.cuda.is_available()
    if cuda:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    world, here = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    fabric = fabric_class()(
        accelerator="cuda" if cuda else "cpu",
        devices=here,
        num_nodes=world // here,
        strategy="ddp" if world > 1 else "auto",
        precision="bf16-mixed" if wish.precision == "bf16" and cuda else "32-true",
    )
    fabric.launch()
    return fabric


def fabric_class() -> type[Fabric]:
    for name in ("lightning_fabric", "lightning.fabric"):
        try:
            found: type[Fabric] = importlib.import_module(name).Fabric
            return found
        except ImportError:
            continue
    raise PahsError("training needs lightning-fabric; install it with: pip install 'pahs[train]'")


def main(fabric: Fabric, recipe: Recipe, out: Path, resume: bool = False) -> Path:
    """Make every object of the run, train, and write the weights."""
    clock = Clock()
    checkpoint = find_checkpoint(out, recipe, resume)
    book = Logbook(out, checkpoint.step if checkpoint else 0, fabric.is_global_zero)
    if recipe.train.precision == "bf16" and fabric.device.type != "cuda":
        book.say("bf16 is for CUDA; training in fp32 here")
    share = Share(fabric.global_rank, fabric.world_size)
    photos = open_photos(recipe, fabric.device)
    source = open_source(recipe, photos, share, fabric.device, book.say)
    if recipe.train.epochs and not source.steps_per_epoch:
        raise PahsError(f'train.epochs needs data.kind = "dataset"; set train.steps for "{recipe.data.kind}"')
    clips = open_clips(recipe, photos, share)
    model = make_model(recipe).to(fabric.device)
    update, step, compiled = make_step(fabric, recipe, model)
    steps = total_steps(recipe.train, source.steps_per_epoch)
    run = Run(recipe, out, model, source, clips, update, step, compiled, clock, book, steps)
    if checkpoint:
        restore(run, checkpoint)
        book.say(f"resuming at step {run.made}")
    elif fabric.is_global_zero:
        write_atomically(out / "recipe.toml", to_toml(recipe).encode())

    millions = sum(p.numel() for p in model.parameters()) / 1e6
    book.say(
        f"{recipe.model.preset}: {millions:.2f} M parameters on {fabric.world_size} x {fabric.device.type}, "
        f"{'captured' if isinstance(step, CapturedStep) else 'eager'} steps"
    )
    position = source.state_dict()
    run.step, run.compiled = prepare(step, compiled, source.batch(), book.say)
    source.load_state_dict(position)
    clock.prepared()
    fit(fabric, run)
    book.close()
    return out / FINAL


def fit(fabric: Fabric, run: Run) -> None:
    """Steps until the end of the run, with validations and checkpoints in between."""
    train, optim, validation = run.recipe.train, run.recipe.optim, run.recipe.validation
    length = train.epochs or run.steps
    loss, run.recorded = float("nan"), (run.made, time.monotonic())
    with ticker(run.book, train.report_seconds, run.steps, train.max_minutes) as show:
        while (done := how_far(fabric, run)) < 1:
            lr = learning_rate(run.recipe.schedule, optim.lr, run.made, done, length)
            run.update.set(lr, ema_decay(optim.ema, run.made))
            run.step(*run.source.batch())
            run.made += 1

            if run.made % train.log_steps == 0:
                loss = record(run, lr)
            show.tick(run.made, done, loss, lr)
            if validation.every and run.made % validation.every == 0:
                assess(fabric, run)
                save(fabric, run)
            elif due(run):
                save(fabric, run)
    finish(fabric, run)


def make_model(recipe: Recipe) -> Deblurrer:
    """The network with its first weights."""
    torch.manual_seed(recipe.train.seed)
    model = recipe.model.config.build()
    if recipe.train.init == "scaled":
        scale_weights(model)
    if recipe.train.init_from:
        start = weights.load(recipe.train.init_from)
        try:
            model.load_state_dict(start.state_dict())
        except RuntimeError:
            raise PahsError(
                f"train.init_from = {recipe.train.init_from}: its network differs from model.preset = "
                f"{recipe.model.preset}; use the same preset and [model.config]"
            ) from None
    if recipe.train.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def make_step(fabric: Fabric, recipe: Recipe, model: Deblurrer) -> tuple[Update, Step, Compiled | None]:
    """The step that the machine allows."""
    train, cuda = recipe.train, fabric.device.type == "cuda"
    can_capture = cuda and fabric.world_size == 1
    if train.step == "captured" and not can_capture:
        raise PahsError('train.step is "captured", which needs exactly one CUDA GPU; use "auto"')
    compiled = Compiled(model) if train.compile and cuda else None
    update = Update(model, recipe.optim)
    if can_capture and train.step != "eager":
        objective = Objective(model.training_outputs, fabric.autocast, recipe.optim)
        return update, CapturedStep(objective, update), compiled
    wrapped = fabric.setup_module(model)
    wrapped.mark_forward_method("training_outputs")
    objective = Objective(wrapped.training_outputs, fabric.autocast, recipe.optim)

    def mean(loss: Tensor) -> Tensor:
        return cast(Tensor, fabric.all_reduce(loss)) if fabric.world_size > 1 else loss

    return update, EagerStep(objective, update, fabric.backward, mean), compiled


def command(arguments: Sequence[str] | None = None) -> int:
    """`python -m pahs.train`."""
    parser = argparse.ArgumentParser(prog="python -m pahs.train", description="Train a network by a recipe.")
    parser.add_argument("recipe", help="a TOML file, such as recipes/debug.toml")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument(
        "--out", "--output", "-o", metavar="DIR", help="the run's folder (default: runs/NAME)"
    )
    parser.add_argument(
        "--bench-step", type=int, metavar="N", help="time N steps, eager and captured, instead"
    )
    options = parser.parse_args(arguments)
    try:
        if options.bench_step:
            from pahs.benchmarks.training_step import bench_step  # it needs this module

            recipe = load_recipe(options.recipe, options.sets)
            bench_step(setup(recipe), recipe, options.bench_step, Path(options.out or "runs/bench-step"))
        else:
            print(train(options.recipe, options.sets, options.resume, options.out))
    except PahsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command with --resume goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(command())
