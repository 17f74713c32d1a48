"""Frames in, sharp frames out, in bounded memory: what every front end runs.

The forward state is carried over the whole video. The backward sweep runs over chunks: every output has seen at least
`look_ahead` future frames, or all that are left of its scene. A scene cut ends both.

    frames -> extract (batched) -> waiting features -> propagate (chunk + look-ahead) -> reconstruct (batched) -> frames
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pahs import bands
from pahs.errors import PahsError
from pahs.networks.contract import Deblurrer, Tensors
from pahs.scenes import CutDetector
from pahs.waiting import Waiting, WaitingOutside

log = logging.getLogger(__name__)

FrameT = TypeVar("FrameT", Tensor, NDArray[np.uint8])
Result = TypeVar("Result")

MAX_CHUNK = {"cpu": 32, "cuda": 64}
"""Longer chunks repeat less of the backward sweep, (chunk + look-ahead) / chunk, but hold more, and an encoder waits
longer for the first."""
BATCH_PIXELS = {"cpu": 1 << 18, "cuda": 1 << 23}
"""Pixels in one batch of a frame-wise stage: enough to fill the device, small enough for its caches and memory."""
AHEAD = {"cpu": 0, "cuda": 1}
"""Batches that are looked at for scene cuts before they are needed: while the host waits for the answer, a GPU has the
batch before to work on."""
MEMORY_SHARE = 0.6
"""Share of the free memory for features that wait and for what the sweeps make of them."""
SHORT_CHUNK = 16
"""Rather than restoring fewer frames by one backward sweep, frames wait in the host's memory."""


@dataclass(frozen=True)
class Plan:
    """How a video is cut up to fit the memory. Any plan gives the same frames for the same chunk."""

    chunk: int
    """Frames restored by one backward sweep."""
    batch: int
    """Frames in one call of a frame-wise stage."""
    bands: int = 1
    """Horizontal bands in one call of a frame-wise stage."""
    outside: bool = False
    """Frames wait in the host's memory instead of the device's."""

    def smaller(self, framewise: bool, max_bands: int, may_wait_outside: bool) -> Plan | None:
        """The next thing to try when memory runs out: first what helps that stage and costs least."""
        batch = replace(self, batch=self.batch // 2) if self.batch > 1 else None
        bands = replace(self, bands=min(2 * self.bands, max_bands)) if self.bands < max_bands else None
        outside = replace(self, outside=True) if may_wait_outside and not self.outside else None
        chunk = replace(self, chunk=self.chunk // 2) if self.chunk > 1 else None
        order = (batch, bands, outside, chunk) if framewise else (outside, chunk, batch, bands)
        return next((plan for plan in order if plan is not None), None)


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


def size_text(shape: torch.Size) -> str:
    return f"{shape[2]}x{shape[1]}"


def longest_chunk(device: torch.device) -> int:
    """Frames of a chunk where memory is no matter."""
    return MAX_CHUNK.get(device.type, MAX_CHUNK["cpu"])


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        used = torch.cuda.memory_allocated(device)
        allowed = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return min(free + torch.cuda.memory_reserved(device), allowed) - used
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2 << 30


class Scene:
    """The frames of one scene on their way through the model. After `finish` it is ready for the next scene."""

    def __init__(self, model: Deblurrer, first: Tensor, look_ahead: int | None, chunk: int | None) -> None:
        contract = model.contract
        self.model = model
        self.shape = first.shape
        # Only a second sweep can do with less or use more; a window needs what it needs.
        chosen = contract.family == "bidirectional" and look_ahead is not None
        self.look_ahead = look_ahead if chosen and look_ahead is not None else contract.look_ahead
        multiple = contract.multiple_of
        self.height = -(-first.shape[1] // multiple) * multiple
        self.padding = (0, -first.shape[2] % multiple, 0, self.height - first.shape[1])
        banded = contract.extract_halo is not None and contract.reconstruct_halo is not None
        self.max_bands = self.height // multiple if banded else 1
        pixels = self.height * (first.shape[2] + self.padding[1])
        batch = max(1, BATCH_PIXELS.get(first.device.type, BATCH_PIXELS["cpu"]) // pixels)
        self.chunk_given, self.chosen = chunk is not None, False
        longest = chunk or longest_chunk(first.device)
        self.plan = Plan(longest, min(batch, longest))
        self.may_wait_outside = (
            first.device.type == "cuda" and type(model).propagate_frames is not Deblurrer.propagate_frames
        )
        self.images: list[Tensor] = []
        self.waiting: Waiting | WaitingOutside = Waiting()
        self.state: Tensors | None = None

    def push(self, image: Tensor) -> None:
        self.images.append(image)
        if len(self.images) >= self.plan.batch:
            self._extract()

    def ready(self) -> Iterator[Tensor]:
        """Frames that have seen enough of the future, once a whole chunk of them has."""
        while self.waiting.count >= self.plan.chunk + self.look_ahead:
            yield from self._restore()

    def finish(self) -> Iterator[Tensor]:
        """All frames that are left: the video or the scene ends here."""
        self._extract()
        while self.waiting.count:
            yield from self._restore()
        self.state = None

    def _extract(self) -> None:
        """Turn the collected images into features."""
        while self.images:
            features = self._fit(lambda plan: self._extract_batch(self.images[: plan.batch], plan))
            if not self.chosen:
                with torch.inference_mode():
                    self._choose(features)
            self._fit(
                lambda plan: self.waiting.add(features, plan.chunk + self.look_ahead + plan.batch),  # noqa: B023
                framewise=False,
            )
            del self.images[: features[0].shape[1]]

    def _extract_batch(self, images: list[Tensor], plan: Plan) -> Tensors:
        frames = torch.stack(images)
        if any(self.padding):
            frames = F.pad(frames, self.padding, mode="reflect")
        frames = frames.contiguous(memory_format=torch.channels_last)[None]
        return bands.run(
            lambda inputs: self.model.extract(*inputs),
            (frames,),
            self.height,
            plan.bands,
            self.model.contract.extract_halo or 0,
            self.model.contract.multiple_of,
        )

    def _choose(self, features: Tensors) -> None:
        """The longest chunk that fits, unless one is asked for, and where its frames wait.

        It takes its features, those of the look-ahead, and about as much again for its latents.
        """
        frame_bytes = sum(x.numel() * x.element_size() for x in features) // features[0].shape[1]
        room = int(MEMORY_SHARE * free_memory(features[0].device)) // frame_bytes
        chunk = self.plan.chunk
        inside = (room - self.look_ahead) // 2
        short = self.may_wait_outside and inside < min(SHORT_CHUNK, chunk)
        outside = self.plan.outside or short
        if not self.chunk_given:
            chunk = max(1, min(chunk, min(SHORT_CHUNK, room // 2) if outside else inside))
        self._adopt(replace(self.plan, chunk=chunk, batch=min(self.plan.batch, chunk), outside=outside))
        self.chosen = True

    def _adopt(self, plan: Plan) -> None:
        """Go on by another plan; what waits moves if it says so."""
        if plan.outside and isinstance(self.waiting, Waiting):
            inside, self.waiting = self.waiting, WaitingOutside()
            if inside.count:
                self.waiting.add(inside.features, inside.count)
        self.plan = plan

    def _restore(self) -> Iterator[Tensor]:
        """Propagate over everything that waits, and reconstruct a chunk."""
        latents = self._fit(self._propagate, framewise=False)
        keep, done = latents[0].shape[1], 0
        while done < keep:
            restored = self._fit(
                lambda plan, done=done: self._reconstruct(latents, done, plan)  # type: ignore[misc]
            )
            done += restored.shape[1]
            for image in restored[0]:
                yield image[:, : self.shape[1], : self.shape[2]]
        # Not earlier: latents may be views of what waits.
        with torch.inference_mode():
            self.waiting.drop(keep)

    def _propagate(self, plan: Plan) -> Tensors:
        keep = min(plan.chunk, self.waiting.count)
        # Not all that waits: how many frames one batch brought must change neither the work nor the result.
        sight = keep + self.look_ahead
        if isinstance(self.waiting, Waiting):
            seen = tuple(x[:, :sight] for x in self.waiting.features)
            latents, self.state = self.model.propagate(seen, self.state, keep)
        else:
            frames = list(islice(self.waiting.frames, sight))
            latents, self.state = self.model.propagate_frames(frames, self.state, keep)
        return latents

    def _reconstruct(self, latents: Tensors, start: int, plan: Plan) -> Tensor:
        (restored,) = bands.run(
            lambda inputs: (self.model.reconstruct(inputs),),
            tuple(x[:, start : start + plan.batch] for x in latents),
            self.height,
            plan.bands,
            self.model.contract.reconstruct_halo or 0,
            self.model.contract.multiple_of,
        )
        return restored

    def _fit(self, stage: Callable[[Plan], Result], framewise: bool = True) -> Result:
        """Run a stage; when memory runs out, try again with a smaller plan, and stay with it."""
        while True:
            try:
                with torch.inference_mode():
                    return stage(self.plan)
            except torch.OutOfMemoryError:
                plan = self.plan.smaller(framewise, self.max_bands, self.may_wait_outside)
            if plan is None:
                raise PahsError(
                    f"not enough memory for {size_text(self.shape)} frames; "
                    "use a smaller model, a smaller video or --device cpu"
                ) from None
            log.info("memory is short; going on with %s", plan)
            with torch.inference_mode():
                self._adopt(plan)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
