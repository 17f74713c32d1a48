"""Training, from a recipe to weights: `setup` (arguments) -> `main` (objects) -> `fit` (the loop).

One GPU, or the CPU where there is none:

    pahs train recipes/bundled.toml --set data.root=photos

One machine with 8 GPUs:

    torchrun --standalone --nproc-per-node 8 -m pahs train recipes/gopro.toml --set train.batch=8

Two machines with 8 GPUs each; both run the same command, except for the rank (0 and 1):

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr HOST0 --master-port 29500 \
        -m pahs train recipes/gopro.toml --set train.batch=16

`train.batch` is the whole batch, however many processes share it. After a kill, the same command with `--resume`
continues from the last checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.errors import PahsError
from pahs.files import write_text
from pahs.training.logbook import Logbook, ticker
from pahs.training.recipe import Recipe
from pahs.training.recipe_file import load_recipe, to_toml
from pahs.training.run import FINAL, Run, find_checkpoint
from pahs.training.schedule import Clock
from pahs.training.setup import make_model, make_step, setup
from pahs.training.sources import Share, open_photos, open_source
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


def main(fabric: Fabric, recipe: Recipe, out: Path, resume: bool = False) -> Path:
    """Make every object of the run, train, and write the weights."""
    clock = Clock()
    checkpoint = find_checkpoint(out, recipe, resume)
    book = Logbook(out, checkpoint.step if checkpoint else 0, fabric.is_global_zero)
    if resume and not checkpoint:
        book.say(f"{out}: holds no checkpoint to resume from; starting from the first step")
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
    run = Run(fabric, recipe, out, model, source, clips, update, step, compiled, clock, book)
    if checkpoint:
        run.restore(checkpoint)
    elif fabric.is_global_zero:
        write_text(out / "recipe.toml", to_toml(recipe))
    run.prepare()
    fit(run)
    book.close()
    return out / FINAL


def fit(run: Run) -> None:
    """Make steps until the run ends, with validations and checkpoints in between."""
    train, every, loss = run.recipe.train, run.recipe.validation.every, float("nan")
    with ticker(run.book, train.report_seconds, run.steps, train.max_minutes) as show:
        while (done := run.progress()) < 1:
            lr = run.set_rates(done)
            run.step(*run.source.batch())
            run.made += 1

            if run.made % train.log_steps == 0:
                loss = run.log(lr)
            show.tick(run.made, done, loss, lr)
            if every and run.made % every == 0:
                run.validate()
                run.save()
            elif run.checkpoint_due():
                run.save()
    run.finish()
