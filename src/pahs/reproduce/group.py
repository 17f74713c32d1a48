"""Arms that train on the same batches, each on a CUDA stream of its own if there are several."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pahs.networks import Deblurrer
from pahs.progress import say
from pahs.reproduce.material import Material, recipe_of
from pahs.reproduce.plan import Unit
from pahs.training import schedule
from pahs.training.capture import Step
from pahs.training.setup import make_step, prepare
from pahs.training.share import Inputs, Share
from pahs.training.sources import Ahead, Source, SynthesisSource
from pahs.training.update import Update


class Group:
    """Trainings of one seed whose recipes differ in the network alone."""

    def __init__(self, units: Sequence[Unit], models: Sequence[Deblurrer], material: Material) -> None:
        self.device, self.models = material.device, list(models)
        recipes = [recipe_of(unit, material.scale, material.folder) for unit in units]
        self.recipe = recipes[0]
        data, batch = self.recipe.data, self.recipe.train.batch
        self.source: Source = SynthesisSource(material.photos.train, data, batch, Share())
        if self.device.type == "cuda":
            self.source = Ahead(self.source, self.device)
        made = [make_step(material.fabric, r, model)[:2] for r, model in zip(recipes, models, strict=True)]
        self.updates: list[Update] = [update for update, _ in made]
        self.steps: list[Step] = [step for _, step in made]
        self.streams: list[torch.cuda.Stream] = []

    def prepare(self) -> None:
        """Make every step ready to run; the source then starts again with the same batch."""
        start = self.source.state_dict()
        first = self.source.batch()
        self.steps = [recorded(step, first) for step in self.steps]
        self.source.load_state_dict(start)
        if self.device.type == "cuda" and len(self.steps) > 1:
            self.streams = [torch.cuda.Stream(self.device) for _ in self.steps]  # type: ignore[no-untyped-call]

    def advance(self, number: int, alone: int | None = None) -> None:
        """One step of every arm on the next batch, or of one arm alone."""
        recipe, length = self.recipe, self.recipe.train.steps
        lr = schedule.learning_rate(recipe.schedule, recipe.optim.lr, number, number / length, length)
        decay = schedule.ema_decay(recipe.optim.ema, number)
        batch = self.source.batch()
        if alone is not None or not self.streams:
            for k in range(len(self.steps)) if alone is None else (alone,):
                self.updates[k].set(lr, decay)
                self.steps[k](*batch)
            return
        here = torch.cuda.current_stream(self.device)
        for update, step, stream in zip(self.updates, self.steps, self.streams, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                update.set(lr, decay)
                step(*batch)
        for stream in self.streams:
            here.wait_stream(stream)

    def settle(self) -> None:
        """Wait until everything that was asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def recorded(step: Step, batch: Inputs) -> Step:
    """A step that is ready to run. Graphs that run at the same time must not share the workspace of cuBLAS."""
    if torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()
    return prepare(step, None, batch, say)[0]
