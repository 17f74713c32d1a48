"""A training run's objects, and what happens to them between steps: validation, checkpoints, the end."""

from __future__ import annotations

import time
import tomllib
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pahs.errors import PahsError
from pahs.networks import Deblurrer
from pahs.runtime import weights
from pahs.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from pahs.training.logbook import Logbook
from pahs.training.recipe import Recipe
from pahs.training.recipe_file import differences, parse_recipe, to_toml
from pahs.training.schedule import Clock, progress
from pahs.training.sources import Source
from pahs.training.step import Compiled, Step, Update
from pahs.training.validate import Clip, Scores, save_samples, validate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LAST, BEST, FINAL = "last.ckpt", "best.safetensors", "weights.safetensors"
FIXED = ("model.", "data.", "train.batch", "train.seed")
"""What a resumed run may not change; everything else it may."""
FREE = ("data.root", "data.workers")


@dataclass
class Run:
    """The objects of a training run."""

    recipe: Recipe
    out: Path
    model: Deblurrer
    source: Source
    clips: list[Clip]
    """Validation, this process's part."""
    update: Update
    step: Step
    compiled: Compiled | None
    clock: Clock
    book: Logbook
    steps: int
    """Length of the run; 0: only minutes limit it."""
    made: int = 0
    """Steps made so far."""
    best_psnr: float = -1.0
    assessed: tuple[int, Scores] = (-1, Scores(0, 0.0, 0.0))
    """Step and result of the last validation."""
    saved_at: float = field(default_factory=time.monotonic)
    """When the last checkpoint was written."""
    recorded: tuple[int, float] = (0, 0.0)
    """Step and time of the last line of metrics."""


def how_far(fabric: Fabric, run: Run) -> float:
    """In [0, 1]; the same number in every process, so that all use one learning rate and stop together."""
    spent = run.clock.spent(run.recipe.train.max_minutes)
    if run.recipe.train.max_minutes and fabric.world_size > 1:
        spent = fabric.broadcast(spent)
    return progress(run.made, run.steps, spent)


def record(run: Run, lr: float) -> float:
    """Write down what the last steps did; their mean loss."""
    report = run.update.read()
    step, since = run.recorded
    run.recorded = (run.made, time.monotonic())
    values = {
        "loss": report.loss,
        "lr": lr,
        "gradient_norm": report.gradient_norm,
        "skipped": report.skipped,
        "seconds_per_step": (run.recorded[1] - since) / max(1, run.made - step),
        "minutes": run.clock.elapsed() / 60,
    }
    run.book.write(run.made, values)
    if report.longest_row >= run.recipe.train.max_bad_steps:
        kept = run.out / LAST
        state = f"{kept} holds the last good state" if kept.exists() else "no checkpoint was written yet"
        raise PahsError(
            f"{report.longest_row} steps in a row were not finite, up to step {run.made}; lower optim.lr or set "
            f"optim.clip ({state})"
        )
    if report.skipped_now:
        run.book.say(f"step {run.made}  {report.skipped_now} steps were not finite and changed nothing")
    return report.loss


def due(run: Run) -> bool:
    """Time for a checkpoint? Each process may answer for itself: only the first one writes."""
    train = run.recipe.train
    by_steps = bool(train.checkpoint_steps) and run.made % train.checkpoint_steps == 0
    by_time = (
        bool(train.checkpoint_minutes) and time.monotonic() - run.saved_at >= train.checkpoint_minutes * 60
    )
    return by_steps or by_time


def assess(fabric: Fabric, run: Run) -> Scores:
    """Validate the averaged weights, draw samples, and keep the weights if they are the best so far."""
    drawn = run.recipe.validation.samples if fabric.is_global_zero else 0
    with run.update.averaged(), run.compiled.paused() if run.compiled else nullcontext():
        part, outputs = validate(run.model, run.clips, fabric.device, fabric.autocast)
        sums = torch.tensor([part.frames, part.blurry, part.output], dtype=torch.float64)
        if fabric.world_size > 1:
            sums = cast(Tensor, fabric.all_reduce(sums.to(fabric.device), reduce_op="sum")).cpu()
        scores = Scores(int(sums[0]), float(sums[1]), float(sums[2]))
        if fabric.is_global_zero and scores.psnr_out > run.best_psnr:
            weights.save(run.model, run.out / BEST, notes(run, scores))
    run.best_psnr = max(run.best_psnr, scores.psnr_out)
    run.assessed = (run.made, scores)
    run.book.write(run.made, {"psnr_in": scores.psnr_in, "psnr_out": scores.psnr_out})
    gain = scores.psnr_out - scores.psnr_in
    run.book.say(f"step {run.made}  PSNR {scores.psnr_in:.3f} -> {scores.psnr_out:.3f} dB ({gain:+.3f})")
    pictures = save_samples(run.out / "samples", run.made, run.clips[:drawn], outputs[:drawn])
    for name, picture in pictures:
        run.book.picture(f"samples/{name}", picture, run.made)
    return scores


def notes(run: Run, scores: Scores) -> dict[str, str]:
    """What a weights file says about its training."""
    return {
        "recipe": to_toml(run.recipe),
        "steps": str(run.made),
        "minutes": f"{run.clock.elapsed() / 60:.2f}",
        "psnr_in": f"{scores.psnr_in:.4f}",
        "psnr": f"{scores.psnr_out:.4f}",
    }


def finish(fabric: Fabric, run: Run) -> None:
    """The last validation, the last checkpoint, the final weights."""
    step, scores = run.assessed
    if step != run.made:
        scores = assess(fabric, run)
    save(fabric, run)
    if fabric.is_global_zero:
        with run.update.averaged():
            weights.save(run.model, run.out / FINAL, notes(run, scores))
    fabric.barrier()


def save(fabric: Fabric, run: Run) -> None:
    """Write the last checkpoint anew."""
    run.saved_at = time.monotonic()
    if not fabric.is_global_zero:
        return
    write_checkpoint(
        Checkpoint(
            step=run.made,
            elapsed=run.clock.elapsed(),
            preparing=run.clock.preparing,
            model=run.model.state_dict(),
            ema=run.update.ema,
            optimizer=run.update.optimizer.state_dict(),
            source=run.source.state_dict(),
            rng=torch.get_rng_state(),
            best_psnr=run.best_psnr,
            recipe=to_toml(run.recipe),
        ),
        run.out / LAST,
    )


def find_checkpoint(out: Path, recipe: Recipe, resume: bool) -> Checkpoint | None:
    """The state to go on from; None: start anew."""
    path = out / LAST
    if not path.exists():
        return None
    if not resume:
        raise PahsError(f"{out}: holds a training already; add --resume to go on, or choose another --out")
    checkpoint = read_checkpoint(path)
    before = parse_recipe(tomllib.loads(checkpoint.recipe))
    old, new = (tomllib.loads(to_toml(x)) for x in (before, recipe))
    changed = differences(old, new)
    refused = [name for name in changed if name.startswith(FIXED) and name not in FREE]
    if refused:
        raise PahsError(f"{path}: was trained with another {refused[0]}; restore it, or choose another --out")
    return checkpoint


def restore(run: Run, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's state into the objects."""
    run.model.load_state_dict(checkpoint.model)
    run.update.load(checkpoint.optimizer, checkpoint.ema)
    run.source.load_state_dict(checkpoint.source)
    torch.set_rng_state(checkpoint.rng)
    run.clock.before, run.clock.preparing = checkpoint.elapsed, checkpoint.preparing
    run.made, run.best_psnr = checkpoint.step, checkpoint.best_psnr
