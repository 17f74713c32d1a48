"""Frames in, sharp frames out, in bounded memory: what every front end runs.

The forward state is carried over the whole video. The backward sweep runs over chunks: every output has seen at least
`look_ahead` future frames, or all that are left of its scene. A scene cut ends both.

    frames -> extract (batched) -> queue -> propagate (chunk + look-ahead) -> reconstruct (batched) -> frames
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pahs.engine.restorer import Restorer, size_text
from pahs.engine.scenes import CutDetector, KnownCuts
from pahs.errors import PahsError
from pahs.levels import to_pictures
from pahs.networks.contract import Deblurrer

FrameT = TypeVar("FrameT", Tensor, NDArray[np.uint8])

MOST = 16.0
"""Frames are nominally in [0, 1], and a little beyond; levels up to 255 are far beyond."""
MOST_FRAMES = 1 << 40
"""More than any video has; PyTorch counts no further than 2^63."""
AHEAD = {"cpu": 0, "cuda": 1}
"""Batches that are compared for scene cuts before they are needed: while the host waits for the answer, a GPU computes
the batch before."""


def stream(
    model: Deblurrer,
    frames: Iterable[FrameT],
    *,
    look_ahead: int | None = None,
    chunk: int | None = None,
    scene_cuts: bool | Collection[int] = True,
    warm_up: int = 0,
) -> Iterator[FrameT]:
    """Deblur frames as they come; yields one for each, in order, of the kind that was given.

    Frames are float tensors (3, H, W) in [0, 1], returned on their own device and not clipped, or uint8 arrays
    (H, W, 3). All have one size, at least 16 x 16. `scene_cuts` are the numbers of the frames with which scenes begin,
    where that is known. The first `warm_up` frames only prepare the forward state, and come back as they are.
    """
    if look_ahead is not None and look_ahead < 0:
        raise PahsError(f"look-ahead is {look_ahead}; it must be 0 or more")
    if chunk is not None and chunk < 1:
        raise PahsError(f"chunk is {chunk}; it must be 1 or more")
    look_ahead, chunk = (None if x is None else min(x, MOST_FRAMES) for x in (look_ahead, chunk))
    source = iter(frames)
    try:
        first = next(source)
    except StopIteration:
        return
    image = to_image(first, model)
    model = model.for_size(*image.shape[1:])
    _check_values(image, model)
    # Not the frame itself, which may be part of a larger tensor.
    kind: FrameT = first.new_empty(0) if isinstance(first, Tensor) else first[:0].copy()
    del first
    restorer = Restorer(model, image, look_ahead, chunk)
    cuts = _cuts(scene_cuts, warm_up)
    ahead = AHEAD.get(image.device.type, 0) if cuts is not None else 0
    batches: deque[tuple[list[Tensor], Callable[[], list[bool]]]] = deque()
    pictures = chain(iter([image]), (to_image(_same_kind(x, kind), model) for x in source))
    del image  # only the restorer shall keep a frame: large ones take a good part of a small memory
    if warm_up:
        before = list(islice(pictures, warm_up))
        yield from (from_image(x, kind) for x in before)
        restorer.warm_up(before)
        del before
    for images in _batches(pictures, restorer):
        none: Callable[[], list[bool]] = partial(list, [False] * len(images))
        batches.append((images, none if cuts is None else cuts.cuts(images)))
        if len(batches) > ahead:
            yield from (from_image(x, kind) for x in _through(restorer, *batches.popleft()))
    while batches:
        yield from (from_image(x, kind) for x in _through(restorer, *batches.popleft()))
    yield from (from_image(x, kind) for x in restorer.finish())


def restore(model: Deblurrer, clip: Tensor) -> Tensor:
    """A whole clip (T, 3, H, W) of one scene, where every frame sees all that follow it."""
    return torch.stack(list(stream(model, clip, look_ahead=len(clip), chunk=len(clip), scene_cuts=False)))


def _cuts(scene_cuts: bool | Collection[int], warm_up: int) -> CutDetector | KnownCuts | None:
    if isinstance(scene_cuts, bool):
        return CutDetector() if scene_cuts else None
    return KnownCuts(scene_cuts, warm_up)


def _batches(images: Iterable[Tensor], restorer: Restorer) -> Iterator[list[Tensor]]:
    """Lists of as many images as the frame-wise stages take at a time."""
    batch: list[Tensor] = []
    for image in images:
        if image.shape != restorer.shape:
            raise PahsError(
                f"the frame size changes from {size_text(restorer.shape)} to {size_text(image.shape)}"
            )
        batch.append(image)
        del image
        if len(batch) >= restorer.plan.batch:
            yield batch
            batch = []
    if batch:
        yield batch


def _through(restorer: Restorer, images: list[Tensor], cuts: Callable[[], list[bool]]) -> Iterator[Tensor]:
    """Give images to the restorer, which alone keeps them from then on; yields the restored frames that are ready."""
    for cut in cuts():
        if cut:
            yield from restorer.finish()
        restorer.push(images.pop(0))
        yield from restorer.ready()


def to_image(frame: Tensor | NDArray[np.uint8], model: Deblurrer) -> Tensor:
    """A frame of either kind as (3, H, W) floats in [0, 1] on the model's device."""
    if isinstance(frame, Tensor) and frame.is_floating_point() and frame.ndim == 3 and len(frame) == 3:
        image = frame.to(model.device)
        image = image if image.dtype == torch.float64 else image.float()
    elif isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.shape[2:] == (3,):
        # PyTorch warns of memory that may not be written, such as np.asarray of a Pillow image: copied instead.
        samples = np.require(frame, requirements=["C", "W"])
        image = torch.from_numpy(samples).to(model.device).permute(2, 0, 1).float() / 255
    else:
        raise PahsError(f"{_described(frame)}; a frame must be (3, H, W) floats or a uint8 array (H, W, 3)")
    smallest = model.contract.min_size
    if min(image.shape[1:]) < smallest:
        raise PahsError(f"frames are {size_text(image.shape)}; the smallest is {smallest}x{smallest}")
    return image


def _same_kind(frame: FrameT, first: FrameT) -> FrameT:
    if type(frame) is not type(first):
        raise PahsError(
            f"{_described(frame)} after frames of type {type(first).__name__}; give all of one kind"
        )
    return frame


def _described(frame: object) -> str:
    """What a user gave instead of a frame."""
    if isinstance(frame, Tensor | np.ndarray):
        kind = "tensor" if isinstance(frame, Tensor) else "array"
        return f"got a {str(frame.dtype).removeprefix('torch.')} {kind} {tuple(frame.shape)}"
    return f"got {type(frame).__name__}"


def _check_values(image: Tensor, model: Deblurrer) -> None:
    """Refuse, once for each stream, what would silently restore nothing."""
    if image.is_meta:  # frames without values, to count operations
        return
    if not 0 <= image.abs().max().item() <= MOST:
        raise PahsError(
            f"the first frame reaches {image.abs().max().item():g}; frames are in [0, 1], black to white"
        )
    sums = [p.detach().sum(dtype=torch.float32) for p in model.parameters()]
    if sums and not torch.stack(sums).isfinite().all():
        raise PahsError("the model's weights hold values that are not numbers; its training has diverged")


def from_image(image: Tensor, like: FrameT) -> FrameT:
    """A frame of the kind of `like`."""
    if isinstance(like, Tensor):
        return image.to(like.device, like.dtype)
    return to_pictures(image)
