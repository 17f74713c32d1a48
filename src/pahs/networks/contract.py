"""What the engine may rely on: every network of the zoo is a `Deblurrer`.

A network works in three stages, and only the middle one knows about time:

    extract      frames -> features         frame by frame, batched over time
    propagate    features -> latents        the recurrence, or the window; state in, state out
    reconstruct  latents -> frames          frame by frame, batched over time

Features and latents are flat tuples of tensors shaped (batch, time, channels, height, width), each at the
frame's size divided by a whole number. State is a flat tuple of tensors too, so that it can be kept, moved,
exported or dropped by whoever drives the network. A network holds no state of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from pahs.networks.warm_up import warm_state, without_gradients, without_statistics

Tensors = tuple[Tensor, ...]
Family = Literal["recurrent", "bidirectional", "windowed"]


class ModelConfig(Protocol):
    """What tells one network from another: a frozen dataclass of plain values that builds it."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def build(self) -> Deblurrer: ...


@dataclass(frozen=True)
class Contract:
    """What a caller must know about a network to run it, and no more."""

    family: Family
    """How time is used: one sweep that carries a state, a second one from the future, or a window without state."""
    look_ahead: int
    """Future frames that an output is computed from: by default if bidirectional, else always."""
    multiple_of: int = 16
    """Frame height and width must be multiples of this; the engine pads and crops."""
    min_size: int = 16
    """The smallest height and width that make sense before padding."""
    extract_halo: int | None = None
    """Pixels of context that make `extract` exact on a horizontal band; None: whole frames only."""
    reconstruct_halo: int | None = None
    """The same for `reconstruct`, also in pixels of the frame."""
    stage_bytes: float | None = None
    """Bytes that a frame-wise stage takes for a pixel on a CPU, about; None: the engine tries it out."""
    offloads: bool = False
    """`propagate_frames` fetches one frame at a time, so that features may lie in the host's memory."""

    @property
    def directions(self) -> int:
        """Sweeps over a clip, each with a state of its own."""
        return {"recurrent": 1, "bidirectional": 2, "windowed": 0}[self.family]

    def padded(self, height: int, width: int) -> tuple[int, int]:
        """The size of a frame after padding: both sides rounded up to `multiple_of`."""
        multiple = self.multiple_of
        return -(-height // multiple) * multiple, -(-width // multiple) * multiple


class Deblurrer(nn.Module, ABC):
    """A network that turns blurry frames into sharp ones. Frames are RGB in [0, 1]."""

    config: ModelConfig
    contract: Contract

    @property
    def kind(self) -> str:
        """A name for what computes the network, by which its speed on this machine is remembered."""
        return type(self).__name__

    @property
    def device(self) -> torch.device:
        """Where its weights lie; the CPU if it has none."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights; float32 if it has none."""
        return next((p.dtype for p in self.parameters()), torch.float32)

    def for_size(self, height: int, width: int) -> Deblurrer:
        """The network that restores frames of this size: another one where this one would take too much memory."""
        return self

    @abstractmethod
    def extract(self, frames: Tensor) -> Tensors:
        """(B, T, 3, H, W) -> features, each (B, T, C, H/s, W/s); frame t's features depend on frame t alone."""

    @abstractmethod
    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        """Latents of the first `keep` frames, and the state after them.

        `features` hold `keep` frames to restore and then the look-ahead: frames that will come again in the
        next call. `state` is what the last call returned, or None at the start of a video or scene.
        """

    def propagate_frames(
        self, features: Sequence[Sequence[Tensor]], state: Tensors | None, keep: int
    ) -> tuple[Tensors, Tensors]:
        """`propagate` for features that come frame by frame, each (B, C, h, w).

        They may lie in the host's memory or on a disk, and each tensor is fetched when it is asked for.

        A network whose contract says `offloads` overrides this and fetches each frame when it needs it.
        """
        together = (torch.stack(each, 1).to(self.device) for each in zip(*features, strict=True))
        return self.propagate(tuple(together), state, keep)

    @abstractmethod
    def reconstruct(self, latents: Tensors) -> Tensor:
        """Latents -> (B, T, 3, H, W); frame t depends on the latents of frame t alone."""

    def forward(self, clip: Tensor) -> Tensor:
        """A whole clip (B, T, 3, H, W) at once, as in training: what the stream gives with unlimited look-ahead."""
        latents, _ = self.propagate(self.extract(clip), None, clip.shape[1])
        return self.reconstruct(latents)

    def training_outputs(self, clip: Tensor) -> Tensors:
        """Every restored clip that training compares with the sharp one; a network with stages returns them all."""
        return (self(clip),)

    # For training with warmed-up states (`pahs.networks.warm_up`). A recurrent network gives its first
    # state; one of several directions overrides `warm_up` and `propagate_from` too, with one state per direction.

    def warm_outputs(self, clip: Tensor, resets: Tensor) -> Tensors:
        """`training_outputs`, by sweeps from warmed-up states; `resets`: (passes, directions, B) booleans."""
        features = self.extract(clip)
        with without_gradients(clip.device), without_statistics(self):
            states = self.warm_up(features, resets)
        return (self.reconstruct(self.propagate_from(features, states)),)

    def first_state(self, features: Tensors) -> Tensors:
        """The state before the first frame, which `propagate` takes where it is given None."""
        raise TypeError(
            f"{type(self).__name__} carries nothing from frame to frame, so it has no first state"
        )

    def warm_up(self, features: Tensors, resets: Tensor) -> tuple[Tensors, ...]:
        """Each direction's state after going back and forth over a clip; called without gradients."""

        def sweep(features: Tensors, state: Tensors | None) -> Tensors:
            return self.propagate(features, state, features[0].shape[1])[1]

        back = tuple(x.flip(1) for x in features)
        return (warm_state(features, back, self.first_state, sweep, resets[:, 0]),)

    def propagate_from(self, features: Tensors, states: tuple[Tensors, ...]) -> Tensors:
        """Latents of a whole clip, by sweeps that begin with these states, one per direction."""
        (state,) = states
        return self.propagate(features, state, features[0].shape[1])[0]


def per_frame(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply a module made for images to (B, T, C, H, W), all frames as one batch."""
    y: Tensor = layer(x.flatten(0, 1))
    return y.reshape(*x.shape[:2], *y.shape[1:])
