"""A network whose stages run as graphs: the engine drives it as any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from pahs import configs
from pahs.backends import graphs
from pahs.backends.graphs import FRAMES, RESTORED, Description, Graph, GraphName
from pahs.backends.sessions import GraphBackend, Session, open_graph
from pahs.engine.plan import free_memory, limited, stage_bytes
from pahs.errors import PahsError
from pahs.networks import ARCHITECTURES, Deblurrer, Tensors

TOKEN = 16
"""Height and width of a token of the attention, in pixels of the frame."""
MAP_SHARE = 0.25
"""Of the free memory: what the maps of all pairs of tokens may take, which graphs build and PyTorch does not."""

Moment = dict[str, Tensor]
"""What is known of one frame, by name."""


class GraphNetwork(Deblurrer):
    """Runs exported graphs on the CPU. It has no gradients, and no weights that PyTorch knows of."""

    def __init__(
        self,
        description: Description,
        sessions: Mapping[GraphName, Session],
        backend: GraphBackend,
        precision: str,
    ) -> None:
        super().__init__()
        self.description, self.backend, self.precision = description, backend, precision
        self.config = configs.build(ARCHITECTURES[description.architecture], description.config)
        # Without values a stage has no memory to measure, but its tensors have sizes.
        self.contract = replace(description.contract, stage_bytes=stage_bytes(self.shape()))
        self.instead: Callable[[], Deblurrer] | None = None
        """Loads the same network in PyTorch, where the user left the choice open."""
        self._sessions = dict(sessions)
        self._graphs = {graph.name: graph for graph in description.graphs}
        last = self._graphs.get("reconstruct")
        self._latents = (RESTORED,) if last is None else tuple(port.name for port in last.inputs)
        extract = self._graphs["extract"]
        # A graph that reads a window of frames belongs to the recurrence, which sees more than one.
        self._given = (FRAMES, *(() if extract.reach else (port.name for port in extract.outputs)))
        ports = [port for graph in description.graphs for port in graph.inputs if port.reach]
        self._reaches = {port.name: port.reach for port in ports}
        # The same tensor may be read in windows by one graph and frame by frame by another.
        self._windowed = {port.name for port in last.inputs if port.reach} if last is not None else set()
        self._ahead = 0 if last is None else last.reach

    @classmethod
    def open(cls, folder: Path, backend: GraphBackend, precision: str) -> GraphNetwork:
        about = graphs.read(folder)
        kind = ARCHITECTURES.get(about.architecture)
        try:
            if kind is None:
                raise ValueError(f"its architecture {about.architecture!r} is unknown")
            configs.build(kind, about.config)
        except (ValueError, RecursionError) as error:
            raise PahsError(
                f"{folder / graphs.DESCRIPTION}: cannot be used: {error}; export the model again"
            ) from None
        sessions = {
            graph.name: open_graph(folder / graph.files[0].name, graph, backend, precision)
            for graph in about.graphs
        }
        return cls(about, sessions, backend, precision)

    @property
    def runs(self) -> str:
        """What computes it, and in which precision."""
        return f"{self.backend} {self.precision}"

    @property
    def kind(self) -> str:
        return f"{type(self.config).__name__} {self.runs}"

    def for_size(self, height: int, width: int) -> Deblurrer:
        tokens = height * width // TOKEN**2
        maps = 2 * 4 * tokens**2  # float32, before and after softmax
        large = limited() or maps > MAP_SHARE * free_memory(torch.device("cpu"))
        return self.instead() if self.instead is not None and large else self

    def shape(self) -> Deblurrer:
        """The same network in PyTorch without values, to count its weights and operations."""
        with torch.device("meta"):
            return self.config.build().eval()

    def extract(self, frames: Tensor) -> Tensors:
        if len(self._given) == 1:
            return (frames,)
        results = self._sessions["extract"]([frames.flatten(0, 1).float()])
        return frames, *(x.reshape(*frames.shape[:2], *x.shape[1:]) for x in results)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        return self.propagate_frames(list(zip(*(x.unbind(1) for x in features), strict=True)), state, keep)

    def propagate_frames(
        self, features: Sequence[Sequence[Tensor]], state: Tensors | None, keep: int
    ) -> tuple[Tensors, Tensors]:
        film = _Film(features, self._given, self._reaches, keep, self._past(state))
        forward = self._graphs["forward"]
        now = None if state is None else state[: len(forward.state)]
        after: Tensors = ()
        for t in range(min(keep + self._ahead, len(features))):
            moment = film.moment(t)
            if len(self._given) == 1:
                moment |= self._run("extract", film, t, moment)
            now = self._step(forward, film, t, moment, now)
            film.keep(t, moment, (*self._latents, *self._reaches))
            if t == keep - 1:
                # Copies, because a state may be a frame, which lies in the engine's queue.
                after = tuple(x.clone() for x in now)
        backward = self._graphs.get("backward")
        if backward is not None:
            now = None
            for t in range(len(features) - 1, -1, -1):
                moment = film.moment(t)
                now = self._step(backward, film, t, moment, now)
                if t < keep:
                    film.keep(t, moment, self._latents)
        past = tuple(torch.stack(film.before(name, keep), 1) for name in self._reaches)
        return tuple(self._latent(name, film, keep) for name in self._latents), (*after, *past)

    def reconstruct(self, latents: Tensors) -> Tensor:
        if "reconstruct" not in self._graphs:
            return latents[0]
        (restored,) = self._sessions["reconstruct"]([x.flatten(0, 1).float() for x in latents])
        return restored.reshape(*latents[0].shape[:2], *restored.shape[1:])

    def _past(self, state: Tensors | None) -> dict[str, Sequence[Tensor]]:
        """The frames before the first one of this call, of all that is read in windows."""
        if state is None:
            return {}
        windows = state[len(self._graphs["forward"].state) :]
        return {name: x.unbind(1) for name, x in zip(self._reaches, windows, strict=True)}

    def _step(self, graph: Graph, film: _Film, t: int, moment: Moment, state: Tensors | None) -> Tensors:
        """One frame: adds to the moment what the graph gives, and returns the next state."""
        if state is None:
            state = tuple(_start(s.channels, s.scale, s.start, moment) for s in graph.state)
        moment |= self._run(graph.name, film, t, moment, state)
        return tuple(moment[s.next] for s in graph.state)

    def _run(self, name: GraphName, film: _Film, t: int, moment: Moment, state: Tensors = ()) -> Moment:
        graph = self._graphs[name]
        inputs = [film.window(p.name, t) if p.reach else moment[p.name] for p in graph.inputs]
        results = self._sessions[name]([*inputs, *state])
        return dict(zip((port.name for port in graph.outputs), results, strict=True))

    def _latent(self, name: str, film: _Film, keep: int) -> Tensor:
        frames = (film.window(name, t) if name in self._windowed else film.take(name, t) for t in range(keep))
        first = next(frames)
        latent = first.new_empty(first.shape[0], keep, *first.shape[1:])
        latent[:, 0] = first
        for t, x in enumerate(frames, 1):
            latent[:, t] = x
        return latent


class _Film:
    """The frames of one call: what is given of each, fetched when it is asked for, and what is kept of the results."""

    def __init__(
        self,
        features: Sequence[Sequence[Tensor]],
        given: tuple[str, ...],
        reaches: Mapping[str, int],
        keep: int,
        past: Mapping[str, Sequence[Tensor]],
    ) -> None:
        self._features, self._given, self._reaches, self._past = features, given, reaches, past
        self._kept: dict[int, Moment] = {t: {} for t in range(len(features))}

    def moment(self, t: int) -> Moment:
        return dict(zip(self._given, self._features[t], strict=True))

    def keep(self, t: int, moment: Moment, names: Sequence[str]) -> None:
        self._kept[t] |= {name: moment[name] for name in names if name in moment and name not in self._given}

    def take(self, name: str, t: int) -> Tensor:
        """A tensor of a frame that is known; it is needed no more."""
        return self._given_at(name, t) if name in self._given else self._kept[t].pop(name)

    def _given_at(self, name: str, t: int) -> Tensor:
        return self._features[t][self._given.index(name)]

    def window(self, name: str, t: int) -> Tensor:
        reach = self._reaches[name]
        return torch.cat([self._at(name, k) for k in range(t - reach, t + reach + 1)], 1)

    def before(self, name: str, t: int) -> list[Tensor]:
        """The frames before a frame that a window of the next call will show."""
        return [self._at(name, k) for k in range(t - self._reaches[name], t)]

    def _at(self, name: str, t: int) -> Tensor:
        """The frame, or the nearest one that is known."""
        if t < 0 and self._past:
            return self._past[name][t]
        if name in self._given:
            return self._given_at(name, min(max(t, 0), len(self._features) - 1))
        known = [k for k in self._kept if name in self._kept[k]]
        return self._kept[min(max(t, 0), max(known))][name]


def _start(channels: int, scale: int, start: tuple[str, ...], first: Moment) -> Tensor:
    """A state before the first frame."""
    if start:
        return torch.cat([first[name] for name in start], 1)
    frames = first[FRAMES]
    return frames.new_zeros(
        frames.shape[0], channels, frames.shape[2] // scale, frames.shape[3] // scale, dtype=torch.float32
    )
