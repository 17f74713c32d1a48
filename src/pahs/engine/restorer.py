"""The network's three stages, run on the frames of one scene after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pahs.engine import bands
from pahs.engine.feature_queue import FeatureQueue, OffloadedQueue, SpooledQueue
from pahs.engine.plan import (
    BATCH_PIXELS,
    LEAST_CHUNK,
    MEMORY_SHARE,
    SHORT_CHUNK,
    WORTH_BANDS,
    Plan,
    free_memory,
    is_shortage,
    longest_chunk,
    stage_bytes,
)
from pahs.errors import PahsError
from pahs.networks.contract import Deblurrer, Tensors

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Restorer:
    """Takes the frames of a scene and gives them back sharp, some later. After `finish` it takes the next scene."""

    def __init__(self, model: Deblurrer, first: Tensor, look_ahead: int | None, chunk: int | None) -> None:
        contract = model.contract
        self.model = model
        self.shape = first.shape
        # A backward sweep can see less or more of the future; a window has one size.
        self.look_ahead = contract.look_ahead
        if contract.family == "bidirectional" and look_ahead is not None:
            self.look_ahead = look_ahead
        self.height, width = contract.padded(*first.shape[1:])
        self.padding = (0, width - first.shape[2], 0, self.height - first.shape[1])
        banded = contract.extract_halo is not None and contract.reconstruct_halo is not None
        self.max_bands = self.height // contract.multiple_of if banded else 1
        batch = max(1, BATCH_PIXELS.get(first.device.type, BATCH_PIXELS["cpu"]) // (self.height * width))
        self.chunk_given, self.planned = chunk is not None, False
        longest = chunk or longest_chunk(first.device)
        bands = self._first_bands(width) if first.device.type == "cpu" else 1
        self.plan = Plan(longest, min(batch, longest), bands)
        self.may_offload = first.device.type == "cuda" and contract.offloads
        self.may_spool = first.device.type == "cpu" and contract.offloads
        self.images: list[Tensor] = []
        self.queue: FeatureQueue | OffloadedQueue | SpooledQueue = FeatureQueue()
        self.state: Tensors | None = None

    def _first_bands(self, width: int) -> int:
        """Bands whose memory, on a CPU, fits next to that of the queue."""
        bands, pixels = 1, self.height * width
        if self.max_bands == 1 or pixels < WORTH_BANDS:
            return bands
        contract = self.model.contract
        halos = 2 * max(contract.extract_halo or 0, contract.reconstruct_halo or 0)
        taken = contract.stage_bytes or stage_bytes(self.model)
        rows = int((1 - MEMORY_SHARE) * free_memory(torch.device("cpu")) / taken) // width
        while bands < self.max_bands and self.height // bands + (halos if bands > 1 else 0) > rows:
            bands = min(2 * bands, self.max_bands)
        return bands

    def warm_up(self, images: list[Tensor]) -> None:
        """Sweep over the frames before a part of a scene, for the forward state that the part begins with."""
        self.images += images
        self._extract()
        while self.queue.count:
            latents = self._fit(self._propagate, framewise=False)
            with torch.inference_mode():
                self.queue.drop(latents[0].shape[1])

    def push(self, image: Tensor) -> None:
        """Take the scene's next frame, (3, H, W)."""
        self.images.append(image)
        if len(self.images) >= self.plan.batch:
            self._extract()

    def ready(self) -> Iterator[Tensor]:
        """Restored frames, as soon as a whole chunk of them has seen its look-ahead."""
        while self.queue.count >= self.plan.chunk + self.look_ahead:
            yield from self._restore()

    def finish(self) -> Iterator[Tensor]:
        """The restored frames that are left: the scene ends here, and with it the forward state."""
        self._extract()
        while self.queue.count:
            yield from self._restore()
        self.state = None

    def _extract(self) -> None:
        """Turn the collected images into features."""
        while self.images:
            features = self._fit(lambda plan: self._extract_batch(self.images[: plan.batch], plan))
            if not self.planned:
                with torch.inference_mode():
                    self._fit_to_memory(features)
            self._fit(
                lambda plan: self.queue.add(features, plan.chunk + self.look_ahead + plan.batch),  # noqa: B023
                framewise=False,
            )
            del self.images[: features[0].shape[1]]

    def _extract_batch(self, images: list[Tensor], plan: Plan) -> Tensors:
        frames = torch.stack(images)
        if any(self.padding):
            frames = F.pad(frames, self.padding, mode="reflect")
        frames = frames.contiguous(memory_format=torch.channels_last)[None]
        halo = self.model.contract.extract_halo or 0
        return self._in_bands(lambda inputs: self.model.extract(*inputs), (frames,), plan, halo)

    def _fit_to_memory(self, features: Tensors) -> None:
        """Plan the longest chunk that fits, unless one is asked for, and whether features are offloaded.

        A chunk needs memory for its features, those of the look-ahead, and about as much again for its latents.
        """
        frame_bytes = sum(x.numel() * x.element_size() for x in features) // features[0].shape[1]
        affordable = int(MEMORY_SHARE * free_memory(features[0].device)) // frame_bytes
        chunk = self.plan.chunk
        fitting = (affordable - self.look_ahead) // 2
        least = SHORT_CHUNK if self.may_offload else LEAST_CHUNK if self.may_spool else 0
        offload = self.plan.offload or (least > 0 and fitting < min(least, chunk))
        if not self.chunk_given:
            chunk = max(1, min(chunk, min(SHORT_CHUNK, affordable // 2) if offload else fitting))
        self._adopt(replace(self.plan, chunk=chunk, batch=min(self.plan.batch, chunk), offload=offload))
        self.planned = True

    def _adopt(self, plan: Plan) -> None:
        """Continue with another plan; the queue moves to the host's memory or to the disk if the plan says so."""
        if plan.offload and isinstance(self.queue, FeatureQueue):
            on_device = self.queue
            self.queue = SpooledQueue() if self.may_spool and not self.may_offload else OffloadedQueue()
            if on_device.count:
                self.queue.add(on_device.features, on_device.count)
        self.plan = plan

    def _restore(self) -> Iterator[Tensor]:
        """Propagate over a chunk and its look-ahead, and reconstruct the chunk."""
        latents = self._fit(self._propagate, framewise=False)
        keep, done = latents[0].shape[1], 0
        while done < keep:
            restored = self._fit(
                lambda plan, done=done: self._reconstruct(latents, done, plan)  # type: ignore[misc]
            )
            done += restored.shape[1]
            for image in restored[0]:
                yield image[:, : self.shape[1], : self.shape[2]]
        # Not earlier: latents may be views of the queue.
        with torch.inference_mode():
            self.queue.drop(keep)

    def _propagate(self, plan: Plan) -> Tensors:
        keep = min(plan.chunk, self.queue.count)
        # Not the whole queue: the size of the last batch must change neither the work nor the result.
        sight = keep + self.look_ahead
        if isinstance(self.queue, FeatureQueue):
            seen = tuple(x[:, :sight] for x in self.queue.features)
            latents, self.state = self.model.propagate(seen, self.state, keep)
        else:
            frames = list(islice(self.queue.frames, sight))
            latents, self.state = self.model.propagate_frames(frames, self.state, keep)
        return latents

    def _reconstruct(self, latents: Tensors, start: int, plan: Plan) -> Tensor:
        inputs = tuple(x[:, start : start + plan.batch] for x in latents)
        halo = self.model.contract.reconstruct_halo or 0
        (restored,) = self._in_bands(lambda inputs: (self.model.reconstruct(inputs),), inputs, plan, halo)
        return restored

    def _in_bands(
        self, stage: Callable[[Tensors], Tensors], inputs: Tensors, plan: Plan, halo: int
    ) -> Tensors:
        return bands.run(stage, inputs, self.height, plan.bands, halo, self.model.contract.multiple_of)

    def _fit(self, stage: Callable[[Plan], Result], framewise: bool = True) -> Result:
        """Run a stage; when memory runs out, try again with a smaller plan, and keep that plan."""
        while True:
            try:
                with torch.inference_mode():
                    return stage(self.plan)
            except (RuntimeError, MemoryError) as error:
                if not is_shortage(error):
                    raise
                plan = self.plan.smaller(framewise, self.max_bands, self.may_offload or self.may_spool)
            if plan is None:
                advice = "a smaller model, a smaller video"
                advice += " or --device cpu" if torch.accelerator.is_available() else " or more --memory"
                raise PahsError(
                    f"not enough memory for {size_text(self.shape)} frames; use {advice}"
                ) from None
            log.info("memory is short; continuing with %s", plan)
            with torch.inference_mode():
                self._adopt(plan)
            if torch.accelerator.is_available():
                torch.accelerator.empty_cache()


def size_text(shape: torch.Size) -> str:
    return f"{shape[2]}x{shape[1]}"
