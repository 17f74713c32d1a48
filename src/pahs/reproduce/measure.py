"""What is measured on a trained network: PSNR and SSIM of held-out clips, and what its attention does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.evaluation.metrics import PSNR_CAP, ssim
from pahs.evaluation.protocol import passes
from pahs.levels import to_levels
from pahs.networks import PAHS, Deblurrer
from pahs.networks.steps import distances, look
from pahs.reproduce.claims import PSNR, compared
from pahs.reproduce.material import Clips, Material
from pahs.reproduce.plan import FUTURE, Arm

TOGETHER = 8
"""Clips that are restored as one batch."""
SSIM_EVERY = 4
"""SSIM is reported and never decides, so every fourth frame does."""
BINS = 50
FAR = 64
"""Pixels beyond which attention counts as far."""

Metrics = dict[str, tuple[float, ...]]
Restore = Callable[[Tensor], Tensor]
"""(K, T, 3, H, W) uint8 -> the same, restored."""


@dataclass(frozen=True)
class Measured:
    """All numbers of one network."""

    metrics: Metrics
    positions: tuple[float, ...]
    histograms: dict[str, tuple[int, ...]]


def restorer(model: Deblurrer, material: Material) -> Restore:
    """Whole clips at once, padded as in the engine."""

    @torch.no_grad()
    def restore(clips: Tensor) -> Tensor:
        height, width = clips.shape[-2:]
        rows, columns = model.contract.padded(height, width)
        outputs = []
        for some in torch.split(clips, TOGETHER):
            frames = F.pad(
                some.float().div(255).flatten(0, 1), (0, columns - width, 0, rows - height), "reflect"
            )
            with material.fabric.autocast():
                out = model(frames.view(*some.shape[:2], 3, rows, columns))
            outputs.append(to_levels(out.float()[..., :height, :width]))
        return torch.cat(outputs)

    return restore


def psnr_of_frames(restored: Tensor, sharp: Tensor) -> Tensor:
    """(K, T): PSNR of 8-bit frames, each at most PSNR_CAP."""
    error = (restored.double() - sharp.double()).square().mean((2, 3, 4))
    return (10 * torch.log10(255.0**2 / error)).clamp(max=PSNR_CAP)


def listed(values: Tensor) -> tuple[float, ...]:
    return tuple(float(x) for x in values.tolist())


def of_clips(frames: Tensor) -> tuple[float, ...]:
    """One number per clip: the mean over its frames."""
    return listed(frames.mean(1))


def measure(arm: Arm, model: Deblurrer, material: Material) -> Measured:
    """Everything that the claims and tables need of this arm."""
    restore, clips = restorer(model, material), material.clips
    restored = restore(clips.blurry)
    frames = psnr_of_frames(restored, clips.sharp)
    metrics: Metrics = {
        "psnr": of_clips(frames),
        "psnr:input": of_clips(psnr_of_frames(clips.blurry, clips.sharp)),
        "ssim": structural(restored, clips.sharp),
    }
    metrics |= extra(arm, restore, model, material)
    histograms: dict[str, tuple[int, ...]] = {}
    for group in sorted({clip.group for clip in material.shown}):
        chosen = [clip for clip in material.shown if clip.group == group]
        scores = [psnr_of_frames(restore(c.blurry[None]), c.sharp[None]).mean() for c in chosen]
        inputs = [psnr_of_frames(c.blurry[None], c.sharp[None]).mean() for c in chosen]
        metrics |= {
            f"{group}": listed(torch.stack(scores)),
            f"{group}:input": listed(torch.stack(inputs)),
        }
    if isinstance(model, PAHS) and model.config.refine.attention != "none":
        found, histograms = attention(model, material)
        metrics |= found
    return Measured(metrics, listed(frames.mean(0)), histograms)


def along(arm: Arm, model: Deblurrer, material: Material) -> Metrics:
    """What claims compare of an arm, in the middle of its training."""
    restore, clips, wanted = restorer(model, material), material.clips, compared(arm.name)
    found = {PSNR: of_clips(psnr_of_frames(restore(clips.blurry), clips.sharp))}
    if wanted - {PSNR}:
        found |= extra(arm, restore, model, material)
        if isinstance(model, PAHS) and not arm.continues:
            found |= attention(model, material)[0]
    return {name: values for name, values in found.items() if name in wanted}


def extra(arm: Arm, restore: Restore, model: Deblurrer, material: Material) -> Metrics:
    """What is measured on some arms only."""
    metrics: Metrics = {}
    if "large-motion" in arm.extras:
        metrics |= large_motion(restore, material.twice_as_long)
    if "neighbour" in arm.extras:
        metrics |= neighbour(restore, material.clips, model)
    if "future" in arm.extras:
        metrics |= future(model, material)
    return metrics


def structural(restored: Tensor, sharp: Tensor) -> tuple[float, ...]:
    values = []
    for output, truth in zip(restored, sharp, strict=True):
        some = [
            ssim(a, b)
            for a, b in zip(
                output[SSIM_EVERY // 2 :: SSIM_EVERY], truth[SSIM_EVERY // 2 :: SSIM_EVERY], strict=True
            )
        ]
        values.append(sum(some) / len(some))
    return tuple(values)


def large_motion(restore: Restore, clips: Clips) -> Metrics:
    """Every second frame of a clip, and the same frames where none is left out."""
    chosen, truth = clips.blurry[:, ::2], clips.sharp[:, ::2]
    return {
        "large-motion": of_clips(psnr_of_frames(restore(chosen), truth)),
        "large-motion:plain": of_clips(psnr_of_frames(restore(clips.blurry)[:, ::2], truth)),
        "large-motion:input": of_clips(psnr_of_frames(chosen, truth)),
    }


def neighbour(restore: Restore, clips: Clips, model: Deblurrer) -> Metrics:
    """Each frame scored while its neighbour is the sharp one."""
    count = clips.blurry.shape[1]
    scores = clips.blurry.new_zeros(clips.blurry.shape[:2], dtype=torch.float64)
    for one in passes(count, True, model.contract.family):
        given, scored = clips.blurry.clone(), sorted(one.scored)
        for t in one.replaced:
            given[:, t] = clips.sharp[:, t]
        scores[:, scored] = psnr_of_frames(restore(given)[:, scored], clips.sharp[:, scored])
    return {"neighbour": of_clips(scores)}


@torch.no_grad()
def future(model: Deblurrer, material: Material) -> Metrics:
    """The first frames of long clips, each restored with exactly so many future frames."""
    clips, scored = material.long_clips, material.scale.long_scored
    truth = clips.sharp[:, :scored]
    if model.contract.family != "bidirectional":
        restored = restorer(model, material)(clips.blurry[:, :scored])
        return {"future:own": of_clips(psnr_of_frames(restored, truth))}
    metrics = {}
    with material.fabric.autocast():
        features = model.extract(clips.blurry.float().div(255))
        for ahead in FUTURE:
            state, outputs = None, []
            for t in range(scored):
                part = tuple(x[:, t : t + 1 + ahead] for x in features)
                latents, state = model.propagate(part, state, 1)
                outputs.append(to_levels(model.reconstruct(latents).float()))
            metrics[f"future:{ahead}"] = of_clips(psnr_of_frames(torch.cat(outputs, 1), truth))
    return metrics


def attention(model: PAHS, material: Material) -> tuple[Metrics, dict[str, tuple[int, ...]]]:
    """S_Sel by direction, and how far attention reaches, on the first clips without their first frame."""
    clip = material.clips.blurry[:TOGETHER].float().div(255)
    looks = look(model, clip, range(1, clip.shape[1] - 1))
    metrics: Metrics = {}
    histograms = {}
    reach: list[Tensor] = []
    for cell, steps in looks.items():
        if steps[0].selection is not None:
            values = torch.stack([s.selection.float() for s in steps if s.selection is not None], 1)
            metrics[f"selection:{cell}"] = listed(values.mean((1, 2)))
            metrics[f"selection:{cell}:spread"] = listed(values.flatten(1).std(1))
            histograms[cell] = tuple(int(x) for x in values.flatten().cpu().histc(BINS, 0, 1).tolist())
        far = distances(steps[0].grid, clip.device)
        for step in steps:
            shares = step.attention()
            mean = far.mean()  # keys in any other order: each is as likely anywhere
            reach.append(
                torch.stack(
                    [
                        (shares * far).sum(2).mean(1),
                        mean.expand(len(shares)),
                        (shares * (far > FAR)).sum(2).mean(1),
                        (far > FAR).float().mean().expand(len(shares)),
                    ]
                )
            )
    names = ("distance", "shuffled", "far", "far:shuffled")
    for name, values in zip(names, torch.stack(reach).mean(0), strict=True):
        metrics[f"attention:{name}"] = listed(values)
    return metrics, histograms
