"""A recurrent cell's step as a CUDA graph: one launch instead of over a hundred small ones.

A step is recorded once for a size and replayed for every frame, in either direction and for any length of video. The
graph reads and writes memory of its own: what a frame brings is copied in, the new state is copied out.
"""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Protocol

import torch
from torch import Tensor

from pahs.networks.contract import Tensors

log = logging.getLogger(__name__)

WARM_UP = 2
"""Steps before the recording, in which libraries choose their kernels and take their workspace."""


class Steps(Protocol):
    """A cell: what it reads of a frame and its state -> its new state, of the same shapes."""

    def step(self, read: Tensors, state: Tensors) -> Tensors: ...

    def parameters(self) -> Any: ...


class Recording:
    """The graph of one cell for the size it has seen last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.key: object = None
        self.graph: torch.cuda.CUDAGraph | None = None
        """None: this size could not be recorded."""
        self.read: Tensors = ()
        self.state: Tensors = ()
        self.given: Tensors | None = None
        """What the last call returned, which is what `state` holds."""
        self.used: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def step(self, cell: Steps, read: Tensors, state: Tensors) -> Tensors:
        with self.lock:
            where = next(iter(cell.parameters())).data_ptr()
            key = (where, *((x.shape, x.dtype, x.device) for x in (*read, *state)))
            if key != self.key:
                self.key = key
                self._record(cell, read, state)
            if self.graph is None:
                return cell.step(read, state)
            here = torch.cuda.current_stream(read[0].device)
            # Others may use the same memory from another stream.
            here.wait_event(self.used)
            for mine, x in zip(self.read, read, strict=True):
                mine.copy_(x)
            if state is not self.given:
                for mine, x in zip(self.state, state, strict=True):
                    mine.copy_(x)
            self.graph.replay()
            self.given = tuple(x.clone() for x in self.state)
            self.used.record(here)
            return self.given

    def _record(self, cell: Steps, read: Tensors, state: Tensors) -> None:
        self.graph = self.given = None
        try:
            self.read, self.state = (tuple(_own(x) for x in tensors) for tensors in (read, state))
            side = torch.cuda.Stream(read[0].device)  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream(read[0].device))
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    cell.step(self.read, self.state)
            torch.cuda.synchronize(read[0].device)
            graph = torch.cuda.CUDAGraph()
            # Other threads, such as one that decodes, may go on talking to the device.
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                for mine, x in zip(self.state, cell.step(self.read, self.state), strict=True):
                    mine.copy_(x)
            self.graph = graph
        except Exception as error:  # a graph saves time and nothing else
            self.read = self.state = ()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            log.warning("running without a CUDA graph, which is slower: %s", reason)


_recordings: weakref.WeakKeyDictionary[Steps, Recording] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def step(cell: Steps, read: Tensors, state: Tensors) -> Tensors:
    """cell.step(read, state), by a recorded graph where that is possible: on CUDA, without gradients and autocast."""
    plain = not read[0].is_cuda or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda")
    if plain or torch.cuda.is_current_stream_capturing():
        return cell.step(read, state)
    with _lock:
        recording = _recordings.get(cell)
        if recording is None:
            recording = _recordings[cell] = Recording()
    return recording.step(cell, read, state)


def _own(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.channels_last)
