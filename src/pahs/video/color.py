"""Between stored samples and RGB, without generation loss.

A model wants RGB, a file holds YUV with fewer chroma samples, and going there and back is lossy: chroma is
resampled twice, everything is rounded twice, and colours that RGB cannot show are clipped. So the way back is
not a conversion at all. `to_rgb` neither rounds nor clips, and `apply_change` takes only the *change* that the
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

from pahs.video.frames import ChromaSite, PixelLayout, Plane, Planes


def to_rgb(planes: Planes, pixels: PixelLayout, device: torch.device | str = "cpu") -> Tensor:
    """Samples -> (3, H, W) float32, nominally in [0, 1] but neither rounded nor clipped."""
    if pixels.family == "rgb":
        green, blue, red = (_float(p, device) for p in planes)
        return torch.stack((red, green, blue)).div_(2**pixels.depth - 1)
    offset, luma_scale, chroma_scale = _ranges(pixels)
    y = _float(planes[0], device).sub_(offset).div_(luma_scale)
    if pixels.family == "gray":
        return torch.stack((y, y, y))
    middle = 2 ** (pixels.depth - 1)
    chroma = torch.stack([_float(p, device) for p in planes[1:]]).sub_(middle).div_(chroma_scale)
    height, width = y.shape
    cb, cr = _upsample(chroma, pixels)[:, :height, :width]
    kr, kb = pixels.luma_weights
    kg = 1 - kr - kb
    rgb = y.new_empty((3, height, width))
    torch.add(y, cr, alpha=2 * (1 - kr), out=rgb[0])
    torch.add(y, cr, alpha=-2 * (1 - kr) * kr / kg, out=rgb[1]).sub_(cb, alpha=2 * (1 - kb) * kb / kg)
    torch.add(y, cb, alpha=2 * (1 - kb), out=rgb[2])
    return rgb


def apply_change(planes: Planes, rgb_in: Tensor, rgb_out: Tensor, pixels: PixelLayout) -> Planes:
    """The source's samples plus the model's change: `rgb_in` is `to_rgb(planes)`, `rgb_out` what became of it."""
    return begin_change(planes, rgb_in, rgb_out, pixels)()


def begin_change(
    planes: Planes, rgb_in: Tensor, rgb_out: Tensor, pixels: PixelLayout
) -> Callable[[], Planes]:
    """`apply_change` without waiting for the device: the result is there when the returned function is called."""
    # A sample that a half-precision overflow turned into NaN or infinity keeps its source value.
    change = torch.nan_to_num(rgb_out.float() - rgb_in, nan=0.0, posinf=0.0, neginf=0.0)
    red, green, blue = change
    if pixels.family == "rgb":
        scale = 2**pixels.depth - 1
        changes = [green * scale, blue * scale, red * scale]
    else:
        _, luma_scale, chroma_scale = _ranges(pixels)
        kr, kb = pixels.luma_weights
        y = kr * red + (1 - kr - kb) * green + kb * blue
        changes = [y * luma_scale]
        if pixels.family != "gray":
            chroma = torch.stack(((blue - y) / (2 * (1 - kb)), (red - y) / (2 * (1 - kr))))
            changes.extend(_downsample(chroma, pixels) * chroma_scale)
    return _fetch([_add(p, c, pixels.depth) for p, c in zip(planes, changes, strict=True)], pixels.depth)


def _ranges(pixels: PixelLayout) -> tuple[float, float, float]:
    """Black level, luma span and chroma span in sample values."""
    if pixels.full_range:
        top = 2**pixels.depth - 1
        return 0, top, top
    step = 2 ** (pixels.depth - 8)
    return 16 * step, 219 * step, 224 * step


def _float(plane: Plane, device: torch.device | str) -> Tensor:
    if plane.dtype == np.uint8:
        return _upload(torch.from_numpy(plane), device).float()
    # Few operations know unsigned 16-bit tensors, so the bits travel as signed ones.
    return _upload(torch.from_numpy(plane.view(np.int16)), device).int().bitwise_and_(0xFFFF).float()


def _upload(x: Tensor, device: torch.device | str) -> Tensor:
    """To the device; from page-locked memory, because only from there a copy runs beside other work."""
    if torch.device(device).type == "cuda":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def _add(plane: Plane, change: Tensor, depth: int) -> Tensor:
    """Samples where the change is, as bytes or as the bits of 16-bit numbers."""
    # float32 holds every 16-bit sample and a change of half a step exactly, so zero change is the identity.
    total = _float(plane, change.device) + change
    total = total.round_().clamp_(0, 2**depth - 1)
    return total.to(torch.uint8) if depth == 8 else total.int().to(torch.int16)


def _fetch(samples: list[Tensor], depth: int) -> Callable[[], Planes]:
    """Begin to copy samples to the host; the function waits for them."""
    ready: torch.cuda.Event | None = None
    if samples[0].is_cuda:
        here = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in samples]
        for mine, x in zip(here, samples, strict=True):
            mine.copy_(x, non_blocking=True)
        ready = torch.cuda.current_stream(samples[0].device).record_event()
        samples = here

    def planes() -> Planes:
        if ready is not None:
            ready.synchronize()
        arrays = tuple(x.numpy() for x in samples)
        return arrays if depth == 8 else tuple(x.view(np.uint16) for x in arrays)

    return planes


def _upsample(chroma: Tensor, pixels: PixelLayout) -> Tensor:
    """(2, h, w) chroma -> luma resolution, linearly; rows sit between two luma rows, columns as the layout says."""
    vertical, horizontal = pixels.subsampling
    if vertical == 2:
        chroma = _double(chroma, 1, "center")
    if horizontal == 2:
        chroma = _double(chroma, 2, pixels.chroma_site)
    return chroma


def _double(x: Tensor, dim: int, site: ChromaSite) -> Tensor:
    count = x.shape[dim]
    before = torch.cat((x.narrow(dim, 0, 1), x.narrow(dim, 0, count - 1)), dim)
    after = torch.cat((x.narrow(dim, 1, count - 1), x.narrow(dim, count - 1, 1)), dim)
    even, odd = (x, x.lerp(after, 0.5)) if site == "left" else (x.lerp(before, 0.25), x.lerp(after, 0.25))
    return torch.stack((even, odd), dim + 1).flatten(dim, dim + 1)


def _downsample(change: Tensor, pixels: PixelLayout) -> Tensor:
    """(2, H, W) at luma resolution -> the chroma planes' size, each sample the mean of what it covers."""
    vertical, horizontal = pixels.subsampling
    if vertical == 2:
        change = _halve(change, 1, "center")
    if horizontal == 2:
        change = _halve(change, 2, pixels.chroma_site)
    return change


def _halve(x: Tensor, dim: int, site: ChromaSite) -> Tensor:
    if x.shape[dim] % 2:
        x = torch.cat((x, x.narrow(dim, x.shape[dim] - 1, 1)), dim)
    even, odd = (x[:, ::2], x[:, 1::2]) if dim == 1 else (x[..., ::2], x[..., 1::2])
    if site == "center":
        return even.lerp(odd, 0.5)
    previous = torch.cat((even.narrow(dim, 0, 1), odd.narrow(dim, 0, odd.shape[dim] - 1)), dim)
    return even.lerp((previous + odd) / 2, 0.5)
