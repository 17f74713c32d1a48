"""Frames in, sharp frames out, in bounded memory: what every front end runs.

The forward state is carried over the whole video. The backward sweep runs over chunks: every output has seen at least
`look_ahead` future frames, or all that are left of its scene. A scene cut ends both.

    frames -> extract (batched) -> waiting features -> propagate (chunk + look-ahead) -> reconstruct (batched) -> frames
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pahs.engine.scene import Scene, size_text
from pahs.engine.scenes import CutDetector
from pahs.errors import PahsError
from pahs.networks.contract import Deblurrer

FrameT = TypeVar("FrameT", Tensor, NDArray[np.uint8])

AHEAD = {"cpu": 0, "cuda": 1}
"""Batches that are looked at for scene cuts before they are needed: while the host waits for the answer, a GPU has the
batch before to work on."""


def stream(
    model: Deblurrer,
    frames: Iterable[FrameT],
    *,
    look_ahead: int | None = None,
    chunk: int | None = None,
    scene_cuts: bool = True,
) -> Iterator[FrameT]:
    """Deblur frames as they come; yields one for each, in order, of the kind that was given.

    Frames are float tensors (3, H, W) in [0, 1], returned on their own device and not clipped, or uint8 arrays
    (H, W, 3). All have one size, at least 16 x 16.
    """
    if look_ahead is not None and look_ahead < 0:
        raise PahsError(f"look-ahead is {look_ahead}; it must be 0 or more")
    if chunk is not None and chunk < 1:
        raise PahsError(f"chunk is {chunk}; it must be 1 or more")
    source = iter(frames)
    first = next(source, None)
    if first is None:
        return
    image = to_image(first, model)
    # Not the frame itself, which may be part of a larger tensor.
    kind: FrameT = first.new_empty(0) if isinstance(first, Tensor) else first[:0].copy()
    del first
    scene = Scene(model, image, look_ahead, chunk)
    cuts = CutDetector() if scene_cuts else None
    ahead = AHEAD.get(image.device.type, 0) if cuts is not None else 0
    batches: deque[tuple[list[Tensor], Callable[[], list[bool]]]] = deque()
    pictures = chain(iter([image]), (to_image(x, model) for x in source))
    del image  # nobody but the scene shall keep a frame: large ones are a good part of a small memory
    for images in _batches(pictures, scene):
        batches.append((images, cuts.cuts(images) if cuts is not None else partial(_none, len(images))))
        if len(batches) > ahead:
            yield from (from_image(x, kind) for x in _through(scene, *batches.popleft()))
    while batches:
        yield from (from_image(x, kind) for x in _through(scene, *batches.popleft()))
    yield from (from_image(x, kind) for x in scene.finish())


def _batches(images: Iterable[Tensor], scene: Scene) -> Iterator[list[Tensor]]:
    """As many at a time as the scene's frame-wise stages take."""
    batch: list[Tensor] = []
    for image in images:
        if image.shape != scene.shape:
            raise PahsError(
                f"the frame size changes from {size_text(scene.shape)} to {size_text(image.shape)}"
            )
        batch.append(image)
        del image
        if len(batch) >= scene.plan.batch:
            yield batch
            batch = []
    if batch:
        yield batch


def _through(scene: Scene, images: list[Tensor], cuts: Callable[[], list[bool]]) -> Iterator[Tensor]:
    """Give images to the scene, which alone keeps them from then on; what becomes ready."""
    for cut in cuts():
        if cut:
            yield from scene.finish()
        scene.push(images.pop(0))
        yield from scene.ready()


def _none(frames: int) -> list[bool]:
    return [False] * frames


def to_image(frame: Tensor | NDArray[np.uint8], model: Deblurrer) -> Tensor:
    """A frame of either kind as (3, H, W) floats in [0, 1] where the model is."""
    weight = next(model.parameters(), torch.empty(0))
    if isinstance(frame, Tensor):
        image = frame.to(weight.device)
        image = image if image.dtype == torch.float64 else image.float()
    else:
        image = torch.from_numpy(np.ascontiguousarray(frame)).to(weight.device).permute(2, 0, 1).float() / 255
    if image.ndim != 3 or image.shape[0] != 3:
        raise PahsError(f"a frame must be (3, H, W) or uint8 (H, W, 3), not {tuple(frame.shape)}")
    smallest = model.contract.min_size
    if min(image.shape[1:]) < smallest:
        raise PahsError(f"frames are {size_text(image.shape)}; the smallest is {smallest}x{smallest}")
    return image


def from_image(image: Tensor, like: FrameT) -> FrameT:
    if isinstance(like, Tensor):
        return image.to(like.device, like.dtype)
    levels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    array: NDArray[np.uint8] = levels.permute(1, 2, 0).cpu().numpy()
    return array
