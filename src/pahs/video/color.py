"""Between stored samples and RGB, without generation loss.

A model wants RGB, a file holds YUV with fewer chroma samples, and going there and back is lossy: chroma is
resampled twice, everything is rounded twice, and colours that RGB cannot show are clipped. So the result is
not converted at all. `to_rgb` neither rounds nor clips, and `apply_change` takes only the *change* that the
model made, rgb_out - rgb_in, brings it into the file's own colour space, and adds it to the file's own samples:

    sample_out = clip(round(sample_in + to_yuv(rgb_out - rgb_in)))

The conversion is linear, so this equals converting rgb_out where the round trip is exact, and where the model
changed nothing the samples come back bit for bit, whatever the chroma format, range or depth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pahs.video.frames import ChromaSite, PixelLayout, Planes


def to_rgb(planes: Planes, pixels: PixelLayout, device: torch.device | str = "cpu") -> Tensor:
    """Samples -> (3, H, W) float32, nominally in [0, 1] but neither rounded nor clipped."""
    return rgb_of(tuple(x.to(device) for x in as_tensors(planes)), pixels)


def apply_change(planes: Planes, rgb_in: Tensor, rgb_out: Tensor, pixels: PixelLayout) -> Planes:
    """The source's samples plus the model's change: `rgb_in` is `to_rgb(planes)`, `rgb_out` the model's output."""
    samples = tuple(x.to(rgb_in.device) for x in as_tensors(planes))
    return as_arrays(tuple(x.cpu() for x in change(samples, rgb_in, rgb_out, pixels)))


def from_rgb(rgb: Tensor, pixels: PixelLayout) -> Planes:
    """RGB (3, H, W) on the CPU -> samples: the change from a grey picture is added to its samples."""
    height, width = rgb.shape[1:]
    vertical, horizontal = pixels.subsampling
    small = (-(-height // vertical), -(-width // horizontal))
    shapes = [(height, width), *([small] * 2 if pixels.family != "gray" else [])]
    middle = 1 << (pixels.depth - 1)
    grey: Planes = tuple(np.full(shape, middle, pixels.dtype) for shape in shapes)  # type: ignore[misc]
    return apply_change(grey, to_rgb(grey, pixels), rgb, pixels)


Samples = tuple[Tensor, ...]
"""Planes of one frame or of many, (..., h, w), as PyTorch holds them: bytes, or the bits of 16-bit numbers as signed
ones, because few operations know the unsigned."""


def as_tensors(planes: Planes) -> Samples:
    """The same memory, as tensors."""
    return tuple(torch.from_numpy(p if p.dtype == np.uint8 else p.view(np.int16)) for p in planes)


def as_arrays(samples: Samples) -> Planes:
    """The same memory, as arrays."""
    return tuple(x.numpy() if x.dtype == torch.uint8 else x.numpy().view(np.uint16) for x in samples)


def rgb_of(samples: Samples, pixels: PixelLayout) -> Tensor:
    """`to_rgb` of frames that lie on the device that converts them: (..., 3, H, W)."""
    if pixels.family == "rgb":
        green, blue, red = (_float(x) for x in samples)
        return torch.stack((red, green, blue), -3).div_(2**pixels.depth - 1)
    offset, luma_scale, chroma_scale = _ranges(pixels)
    y = _float(samples[0]).sub_(offset).div_(luma_scale)
    if pixels.family == "gray":
        return torch.stack((y, y, y), -3)
    middle = 2 ** (pixels.depth - 1)
    chroma = torch.stack([_float(x) for x in samples[1:]], -3).sub_(middle).div_(chroma_scale)
    height, width = y.shape[-2:]
    cb, cr = _resampled(chroma, pixels, _double)[..., :height, :width].unbind(-3)
    kr, kb = pixels.luma_weights
    kg = 1 - kr - kb
    rgb = y.new_empty((*y.shape[:-2], 3, height, width))
    red, green, blue = rgb.unbind(-3)
    torch.add(y, cr, alpha=2 * (1 - kr), out=red)
    torch.add(y, cr, alpha=-2 * (1 - kr) * kr / kg, out=green).sub_(cb, alpha=2 * (1 - kb) * kb / kg)
    torch.add(y, cb, alpha=2 * (1 - kb), out=blue)
    return rgb


def change(samples: Samples, rgb_in: Tensor, rgb_out: Tensor, pixels: PixelLayout) -> Samples:
    """`apply_change` of frames that lie on the device that converts them."""
    # A sample that a half-precision overflow turned into NaN or infinity keeps its source value.
    difference = torch.nan_to_num(rgb_out.float() - rgb_in, nan=0.0, posinf=0.0, neginf=0.0)
    red, green, blue = difference.unbind(-3)
    if pixels.family == "rgb":
        scale = 2**pixels.depth - 1
        changes = [green * scale, blue * scale, red * scale]
    else:
        _, luma_scale, chroma_scale = _ranges(pixels)
        kr, kb = pixels.luma_weights
        y = kr * red + (1 - kr - kb) * green + kb * blue
        changes = [y * luma_scale]
        if pixels.family != "gray":
            chroma = torch.stack(((blue - y) / (2 * (1 - kb)), (red - y) / (2 * (1 - kr))), -3)
            changes.extend((_resampled(chroma, pixels, _halve) * chroma_scale).unbind(-3))
    return tuple(_add(x, c, pixels.depth) for x, c in zip(samples, changes, strict=True))


def _ranges(pixels: PixelLayout) -> tuple[float, float, float]:
    """Black level, luma span and chroma span in sample values."""
    if pixels.full_range:
        top = 2**pixels.depth - 1
        return 0, top, top
    step = 2 ** (pixels.depth - 8)
    return 16 * step, 219 * step, 224 * step


def _float(samples: Tensor) -> Tensor:
    return (samples if samples.dtype == torch.uint8 else samples.int().bitwise_and_(0xFFFF)).float()


def _add(samples: Tensor, change: Tensor, depth: int) -> Tensor:
    # float32 holds every 16-bit sample and a change of half a step exactly, so zero change is the identity.
    total = (_float(samples) + change).round_().clamp_(0, 2**depth - 1)
    return total.to(torch.uint8) if depth == 8 else total.int().to(torch.int16)


def _resampled(
    chroma: Tensor, pixels: PixelLayout, along: Callable[[Tensor, int, ChromaSite], Tensor]
) -> Tensor:
    """(..., 2, h, w) brought `along` each subsampled axis; rows lie between luma rows, columns as the layout says."""
    vertical, horizontal = pixels.subsampling
    if vertical == 2:
        chroma = along(chroma, -2, "center")
    if horizontal == 2:
        chroma = along(chroma, -1, pixels.chroma_site)
    return chroma


def _double(x: Tensor, dim: int, site: ChromaSite) -> Tensor:
    """Chroma at luma resolution along one axis, linearly."""
    dim, count = x.ndim + dim, x.shape[dim]
    before = torch.cat((x.narrow(dim, 0, 1), x.narrow(dim, 0, count - 1)), dim)
    after = torch.cat((x.narrow(dim, 1, count - 1), x.narrow(dim, count - 1, 1)), dim)
    even, odd = (x, x.lerp(after, 0.5)) if site == "left" else (x.lerp(before, 0.25), x.lerp(after, 0.25))
    return torch.stack((even, odd), dim + 1).flatten(dim, dim + 1)


def _halve(x: Tensor, dim: int, site: ChromaSite) -> Tensor:
    """The chroma planes' resolution along one axis, each sample the mean of what it covers."""
    if x.shape[dim] % 2:
        x = torch.cat((x, x.narrow(dim, x.shape[dim] - 1, 1)), dim)
    even, odd = (x[..., ::2, :], x[..., 1::2, :]) if dim == -2 else (x[..., ::2], x[..., 1::2])
    if site == "center":
        return even.lerp(odd, 0.5)
    previous = torch.cat((even.narrow(dim, 0, 1), odd.narrow(dim, 0, odd.shape[dim] - 1)), dim)
    return even.lerp((previous + odd) / 2, 0.5)
