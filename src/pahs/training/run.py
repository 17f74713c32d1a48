"""A training run: its objects, and what it does between steps (logging, validation, checkpoints)."""

from __future__ import annotations

import math
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
from pahs.training import schedule
from pahs.training.capture import CapturedStep, Compiled, Step
from pahs.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from pahs.training.logbook import Logbook
from pahs.training.recipe import Recipe
from pahs.training.recipe_file import differences, parse_recipe, to_toml
from pahs.training.schedule import Clock
from pahs.training.setup import prepare
from pahs.training.sources import Source
from pahs.training.update import Update
from pahs.training.validate import Clip, Scores, save_samples, validate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

LAST, BEST, FINAL = "last.ckpt", "best.safetensors", "weights.safetensors"
FIXED = ("model.", "data.", "train.batch", "train.seed")
"""What a resumed run may not change; it may change everything else."""
FREE = ("data.root", "data.workers")


@dataclass
class Run:
    """The objects of a training run, and how far it has come."""

    fabric: Fabric
    recipe: Recipe
    out: Path
    model: Deblurrer
    source: Source
    clips: list[Clip]
    """This process's share of the validation clips."""
    update: Update
    step: Step
    compiled: Compiled | None
    clock: Clock
    book: Logbook
    at_once: int
    """Most clips that this process computes at once."""
    made: int = 0
    """Steps made so far."""
    best_psnr: float = -1.0
    validated: tuple[int, Scores] = (-1, Scores(0.0, 0.0))
    """Step and result of the last validation."""
    saved_at: float = field(default_factory=time.monotonic)
    """When the last checkpoint was written."""
    logged: tuple[int, float] = (0, 0.0)
    """Step and time of the last line of metrics."""

    @property
    def steps(self) -> int:
        """Length of the run; 0: only minutes limit it."""
        return schedule.total_steps(self.recipe.train, self.source.steps_per_epoch)

    def prepare(self) -> None:
        """Compile, warm up and capture the step; the source then starts again with the same batch."""
        millions = sum(p.numel() for p in self.model.parameters()) / 1e6
        self.book.say(
            f"{self.recipe.model.preset}: {millions:.2f} M parameters on "
            f"{self.fabric.world_size} x {self.fabric.device.type}, "
            f"{'captured' if isinstance(self.step, CapturedStep) else 'eager'} steps{self.division()}"
        )
        position = self.source.state_dict()
        self.step, self.compiled = prepare(self.step, self.compiled, self.source.batch(), self.book.say)
        self.source.load_state_dict(position)
        self.clock.prepared()
        self.logged = (self.made, time.monotonic())

    def division(self) -> str:
        """How the batch is divided, where it is."""
        batch, world = self.recipe.train.batch, self.fabric.world_size
        part = math.ceil(batch / world)
        if world == 1 and self.at_once >= part:
            return ""
        each = part if batch % world == 0 else f"up to {part}"
        shared = f"a batch of {batch}" + (f" is {each} clips for each process" if world > 1 else "")
        return f", {shared}, {min(part, self.at_once)} at once"

    def progress(self) -> float:
        """In [0, 1]; the same number in every process, so that all use one learning rate and stop together."""
        max_minutes = self.recipe.train.max_minutes
        spent = self.clock.spent(max_minutes)
        if max_minutes and self.fabric.world_size > 1:
            spent = self.fabric.broadcast(spent)
        return schedule.progress(self.made, self.steps, spent)

    def set_rates(self, done: float) -> float:
        """Set the learning rate and the decay of the average for the next step; returns the learning rate."""
        recipe, optim = self.recipe, self.recipe.optim
        length = recipe.train.epochs or self.steps
        lr = schedule.learning_rate(recipe.schedule, optim.lr, self.made, done, length)
        self.update.set(lr, schedule.ema_decay(optim.ema, self.made))
        return lr

    def log(self, lr: float) -> float:
        """Write a line of metrics about the steps since the last one; returns their mean loss."""
        report = self.update.read()
        step, since = self.logged
        self.logged = (self.made, time.monotonic())
        values = {
            "loss": report.loss,
            "lr": lr,
            "gradient_norm": report.gradient_norm,
            "skipped": report.skipped,
            "seconds_per_step": (self.logged[1] - since) / max(1, self.made - step),
            "minutes": self.clock.elapsed() / 60,
        }
        self.book.write(self.made, values)
        if report.longest_row >= self.recipe.train.max_bad_steps:
            kept = self.out / LAST
            state = f"{kept} holds the last good state" if kept.exists() else "no checkpoint was written yet"
            raise PahsError(
                f"{report.longest_row} steps in a row were not finite, up to step {self.made}; "
                f"lower optim.lr or set optim.clip ({state})"
            )
        if report.skipped_now:
            self.book.say(f"step {self.made}  {report.skipped_now} steps were not finite and changed nothing")
        return report.loss

    def validate(self) -> None:
        """Validate the averaged weights, save samples, and keep the weights if they are the best so far."""
        fabric, made = self.fabric, self.made
        drawn = self.recipe.validation.samples if fabric.is_global_zero else 0
        with self.update.averaged(), self.compiled.paused() if self.compiled else nullcontext():
            sums, outputs = validate(self.model, self.clips, fabric.device, fabric.autocast)
            if fabric.world_size > 1:
                sums = cast(Tensor, fabric.all_reduce(sums.to(fabric.device), reduce_op="sum")).cpu()
            frames, psnr_in, psnr_out = sums.tolist()
            scores = Scores(psnr_in / frames, psnr_out / frames)
            self.validated = (made, scores)
            if fabric.is_global_zero and scores.psnr_out > self.best_psnr:
                weights.save(self.model, self.out / BEST, self.notes())
        self.best_psnr = max(self.best_psnr, scores.psnr_out)
        self.book.write(made, {"psnr_in": scores.psnr_in, "psnr_out": scores.psnr_out})
        gain = scores.psnr_out - scores.psnr_in
        self.book.say(f"step {made}  PSNR {scores.psnr_in:.3f} -> {scores.psnr_out:.3f} dB ({gain:+.3f})")
        for name, picture in save_samples(self.out / "samples", made, self.clips[:drawn], outputs[:drawn]):
            self.book.picture(f"samples/{name}", picture, made)

    def notes(self) -> dict[str, str]:
        """The metadata of a weights file: how it was trained, and its last validation."""
        scores = self.validated[1]
        return {
            "recipe": to_toml(self.recipe),
            "steps": str(self.made),
            "minutes": f"{self.clock.elapsed() / 60:.2f}",
            "psnr_in": f"{scores.psnr_in:.4f}",
            "psnr": f"{scores.psnr_out:.4f}",
        }

    def checkpoint_due(self) -> bool:
        """Processes may answer differently: only the first one writes."""
        train = self.recipe.train
        by_steps = train.checkpoint_steps > 0 and self.made % train.checkpoint_steps == 0
        minutes = (time.monotonic() - self.saved_at) / 60
        return by_steps or 0 < train.checkpoint_minutes <= minutes

    def save(self) -> None:
        """Replace the checkpoint by the present state."""
        self.saved_at = time.monotonic()
        if not self.fabric.is_global_zero:
            return
        checkpoint = Checkpoint(
            step=self.made,
            elapsed=self.clock.elapsed(),
            preparing=self.clock.preparing,
            model=self.model.state_dict(),
            ema=self.update.ema,
            optimizer=self.update.optimizer.state_dict(),
            source=self.source.state_dict(),
            rng=torch.get_rng_state(),
            best_psnr=self.best_psnr,
            recipe=to_toml(self.recipe),
            world=self.fabric.world_size,
            at_once=self.at_once,
        )
        write_checkpoint(checkpoint, self.out / LAST)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint's state."""
        self.model.load_state_dict(checkpoint.model)
        self.update.load(checkpoint.optimizer, checkpoint.ema)
        self.source.load_state_dict(checkpoint.source)
        torch.set_rng_state(checkpoint.rng)
        self.clock.before, self.clock.preparing = checkpoint.elapsed, checkpoint.preparing
        self.made, self.best_psnr = checkpoint.step, checkpoint.best_psnr
        before, world = checkpoint.world, self.fabric.world_size
        changed = "" if before == world else f" (processes: {before} until here, {world} now)"
        self.book.say(f"resuming at step {self.made}{changed}")

    def finish(self) -> None:
        """Validate a last time, and write the last checkpoint and the final weights."""
        if self.validated[0] != self.made:
            self.validate()
        self.save()
        if self.fabric.is_global_zero:
            with self.update.averaged():
                weights.save(self.model, self.out / FINAL, self.notes())
        self.fabric.barrier()


def find_checkpoint(out: Path, recipe: Recipe, resume: bool) -> Checkpoint | None:
    """The checkpoint to resume from; None: the run starts from its first step."""
    path = out / LAST
    if not path.exists():
        return None
    if not resume:
        raise PahsError(
            f"{out}: holds a training already; add --resume to continue it, or choose another --output"
        )
    checkpoint = read_checkpoint(path)
    before = parse_recipe(tomllib.loads(checkpoint.recipe))
    old, new = (tomllib.loads(to_toml(x)) for x in (before, recipe))
    changed = differences(old, new)
    refused = [name for name in changed if name.startswith(FIXED) and name not in FREE]
    if refused:
        raise PahsError(
            f"{path}: was trained with another {refused[0]}; restore it, or choose another --output"
        )
    return checkpoint
