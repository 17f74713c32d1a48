"""The frames of one scene on their way through a network."""

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
from pahs.engine.feature_queue import Waiting, WaitingOutside
from pahs.engine.plan import BATCH_PIXELS, MEMORY_SHARE, SHORT_CHUNK, Plan, free_memory, longest_chunk
from pahs.errors import PahsError
from pahs.networks.contract import Deblurrer, Tensors

log = logging.getLogger(__name__)

Result = TypeVar("Result")


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


def size_text(shape: torch.Size) -> str:
    return f"{shape[2]}x{shape[1]}"
