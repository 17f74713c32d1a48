"""Training, from a recipe to weights: `setup` (arguments) -> `main` (objects) -> `fit` (the loop).

One GPU, or the CPU where there is none:

    pahs train recipes/bundled.toml --set data.root=photos

One machine with 8 GPUs:

    torchrun --standalone --nproc-per-node 8 -m pahs train recipes/gopro.toml --set train.batch=8

Two machines with 8 GPUs each; both run the same command, and so does one that takes the place of another:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST0:29500 --max-restarts 100 \
        -m pahs train recipes/gopro.toml --set train.batch=16 --resume

`train.batch` is the whole batch, however many processes share it. After a kill, the same command with `--resume`
continues from the last checkpoint.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.errors import PahsError
from pahs.files import write_text
from pahs.training.logbook import Logbook, ticker
from pahs.training.recipe import Recipe
from pahs.training.recipe_file import common, load_recipe, to_toml
from pahs.training.run import FINAL, LAST, Run, find_checkpoint
from pahs.training.schedule import Clock
from pahs.training.setup import make_model, make_step, setup
from pahs.training.share import Share
from pahs.training.sources import open_photos, open_source
from pahs.training.together import agreed, newest, watched
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
    fabric = setup(loaded)
    with watched(fabric.world_size):
        return main(fabric, loaded, Path(out or Path("runs") / Path(recipe).stem), resume)


def main(fabric: Fabric, recipe: Recipe, out: Path, resume: bool = False) -> Path:
    """Make every object of the run, train, and write the weights."""
    clock = Clock()
    share = Share(fabric.global_rank, fabric.world_size)
    with agreed(fabric) as facts:
        facts.update(common(recipe))
        share.clips(recipe.train.batch)
        checkpoint = find_checkpoint(out, recipe, resume)
    checkpoint = newest(fabric, checkpoint, out / LAST)
    book = Logbook(out, checkpoint.step if checkpoint else 0, fabric.is_global_zero)
    if resume and not checkpoint:
        book.say(f"{out}: holds no checkpoint to resume from; starting from the first step")
    if recipe.train.precision == "bf16" and fabric.device.type != "cuda":
        book.say("bf16 is for CUDA; training in fp32 here")
    with agreed(fabric) as facts:
        photos = open_photos(recipe, fabric.device)
        source = open_source(recipe, photos, share, fabric.device, book.say)
        if recipe.train.epochs and not source.steps_per_epoch:
            raise PahsError(
                f'train.epochs needs data.kind = "dataset"; set train.steps for "{recipe.data.kind}"'
            )
        facts["the number of clips or pictures to train with"] = source.material
        clips = open_clips(recipe, photos, share)
        model = make_model(recipe).to(fabric.device)
    part = math.ceil(recipe.train.batch / fabric.world_size)
    at_once = recipe.train.at_once or (checkpoint and checkpoint.at_once) or part
    update, step, compiled = make_step(fabric, recipe, model, at_once)
    run = Run(fabric, recipe, out, model, source, clips, update, step, compiled, clock, book, at_once)
    if checkpoint:
        run.restore(checkpoint)
    if fabric.is_global_zero:
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
