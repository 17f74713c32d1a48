"""What a run is made of: the machine's devices and processes, the network and the training step."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from pahs.errors import PahsError
from pahs.kernels import training as kernels
from pahs.networks import PAHS, Deblurrer
from pahs.runtime import weights
from pahs.training.capture import CapturedStep, Compiled, Step
from pahs.training.initial import draw_weights, scale_weights
from pahs.training.recipe import Recipe
from pahs.training.step import EagerStep, Objective
from pahs.training.update import Update
from pahs.training.widen import obstacle, widen

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def setup(recipe: Recipe) -> Fabric:
    """Choose the device and the precision, and join the other processes: all that depends on the machine."""
    train = recipe.train
    if train.device == "cuda" and not torch.cuda.is_available():
        raise PahsError('train.device is "cuda", but this PyTorch sees no CUDA GPU; use "cpu" or "auto"')
    cuda = train.device != "cpu" and torch.cuda.is_available()
    if cuda:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    world, here = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    lightning = find_lightning()
    ddp = partial(lightning.strategies.DDPStrategy, timeout=timedelta(minutes=train.timeout_minutes))
    fabric: Fabric = lightning.Fabric(
        accelerator="cuda" if cuda else "cpu",
        devices=here,
        num_nodes=world // here,
        strategy=ddp() if world > 1 else "auto",
        precision="bf16-mixed" if train.precision == "bf16" and cuda else "32-true",
    )
    fabric.launch()
    return fabric


def find_lightning() -> Any:
    for name in ("lightning_fabric", "lightning.fabric"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise PahsError("training needs lightning-fabric; install it with: pip install 'pahs[train]'")


def make_model(recipe: Recipe) -> Deblurrer:
    """Build the network and its initial weights."""
    torch.manual_seed(recipe.train.seed)
    model = recipe.model.config.build()
    draw = scale_weights if recipe.train.init == "scaled" else draw_weights
    draw(model, recipe.train.seed)
    if recipe.train.init_from:
        start_from(model, recipe)
    if recipe.train.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def start_from(model: Deblurrer, recipe: Recipe) -> None:
    """Load the weights that `train.init_from` names; those of a narrower PAHS network are widened."""
    start = weights.load(recipe.train.init_from)
    try:
        model.load_state_dict(start.state_dict())
        return
    except RuntimeError:
        reason = "it is another kind of network, or has other sizes"
    if isinstance(start, PAHS) and isinstance(model, PAHS):
        reason = obstacle(start.config, model.config)
        if not reason:
            widen(start, model, recipe.train.seed)
            return
    raise PahsError(
        f"train.init_from = {recipe.train.init_from} does not fit model.preset = {recipe.model.preset}: {reason}; "
        "use its own preset and [model.config] (width may grow, one extractor may become two)"
    )


def make_step(
    fabric: Fabric, recipe: Recipe, model: Deblurrer, at_once: int = 0
) -> tuple[Update, Step, Compiled | None]:
    """Make the fastest kind of step that the recipe and the machine allow; `at_once` clips are computed at once."""
    train, cuda = recipe.train, fabric.device.type == "cuda"
    one_pass = not 0 < at_once < train.batch / fabric.world_size
    can_capture = cuda and fabric.world_size == 1 and one_pass
    if train.step == "captured" and not can_capture:
        raise PahsError(
            'train.step is "captured", which needs exactly one CUDA GPU, and a batch that it computes at once; '
            'use "auto"'
        )
    kernels.enable(fabric.device if train.fused else None)
    compiled = Compiled(model) if train.compile and cuda else None
    update = Update(model, recipe.optim)
    method = "warm_outputs" if recipe.states.warm_passes else "training_outputs"
    if can_capture and train.step != "eager":
        objective = Objective(getattr(model, method), fabric.autocast, recipe.optim)
        return update, CapturedStep(objective, update), compiled
    wrapped = fabric.setup_module(model)
    wrapped.mark_forward_method(method)
    objective = Objective(getattr(wrapped, method), fabric.autocast, recipe.optim)

    def mean(loss: Tensor) -> Tensor:
        return cast(Tensor, fabric.all_reduce(loss)) if fabric.world_size > 1 else loss

    clips, apart = train.batch / fabric.world_size, partial(fabric.no_backward_sync, wrapped)
    return update, EagerStep(objective, update, fabric.backward, mean, at_once, clips, apart), compiled


def prepare(
    step: Step, compiled: Compiled | None, batch: tuple[Tensor, ...], say: Callable[[str], None]
) -> tuple[Step, Compiled | None]:
    """Warm a step up. If that fails, one line says why and the compiler is left out, then the capture."""
    while True:
        try:
            step.prepare(*batch)
            return step, compiled
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise PahsError(
                    f"the GPU's memory is too small for a step; lower train.batch ({reason})"
                ) from error
            if compiled is not None:
                say(f"continuing without compiling, which failed ({reason})")
                compiled.leave()
                compiled = None
            elif isinstance(step, CapturedStep):
                say(f"continuing without capturing, which failed ({reason})")
                step = step.step
            else:
                raise
            step.update.optimizer.zero_grad(set_to_none=True)
