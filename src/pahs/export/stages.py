"""A network's stages as modules with named tensors, one frame a step: what becomes a graph.

Networks keep the time axis inside their stages. Here it is gone: a batch of frames has one axis, and a step takes the
state as tensors and gives it back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pahs.backends.graphs import FRAMES, RESTORED, Graph, GraphName, Port, State
from pahs.networks import PAHS, Deblurrer, Tensors
from pahs.networks.estrnn import ESTRNN
from pahs.networks.estrnn import REACH as ESTRNN_REACH
from pahs.networks.ifirnn import IFIRNN
from pahs.networks.lstm import LSTM
from pahs.networks.ovd import OVD
from pahs.networks.ovd import REACH as OVD_REACH
from pahs.networks.pahs import Cell
from pahs.networks.refine import Refiner
from pahs.networks.stfan import STFAN


class Stage(nn.Module):
    """A function of tensors that uses a network's layers. Inputs and outputs are float32, whatever the layers are."""

    def __init__(self, network: nn.Module, function: Callable[..., Tensors], keeps: frozenset[int]) -> None:
        super().__init__()
        self.network = network
        self.function = function
        self.keeps = keeps
        """Inputs that are not rounded to the layers' precision."""

    def forward(self, *inputs: Tensor) -> Tensors:
        dtype = next(p.dtype for p in self.network.parameters())
        rounded = (x if i in self.keeps else x.to(dtype) for i, x in enumerate(inputs))
        return tuple(x.float() for x in self.function(*rounded))


@dataclass(frozen=True)
class Part:
    """A graph before it is written."""

    graph: Graph
    """Without files, and its outputs without channels and scales, which `parts` finds out."""
    function: Callable[..., Tensors]

    def stage(self, network: Deblurrer) -> Stage:
        keeps = frozenset(i for i, port in enumerate(self.graph.inputs) if port.name == FRAMES)
        return Stage(network, self.function, keeps)

    def examples(self, batch: int, height: int, width: int) -> Tensors:
        """Inputs for a frame of this size."""
        ports = [(p.channels * (2 * p.reach + 1), p.scale) for p in self.graph.inputs]
        ports += [(s.channels, s.scale) for s in self.graph.state]
        return tuple(torch.rand(batch, c, height // scale, width // scale) for c, scale in ports)


def parts(network: Deblurrer) -> list[Part]:
    """The graphs of a recurrent or bidirectional network."""
    for kind, make in _MAKERS.items():
        if type(network) is kind:
            return _with_sizes(network, make(network))
    raise TypeError(f"{type(network).__name__} has no graphs")


def exportable(network: Deblurrer) -> bool:
    return type(network) in _MAKERS


def _with_sizes(network: Deblurrer, found: list[Part]) -> list[Part]:
    """Channels and scale of every tensor, by running the stages on a small frame."""
    side = 4 * network.contract.multiple_of
    sizes: dict[str, tuple[int, int]] = {FRAMES: (3, 1)}
    known = []

    def sized(ports: tuple[Port, ...]) -> tuple[Port, ...]:
        return tuple(replace(p, channels=sizes[p.name][0], scale=sizes[p.name][1]) for p in ports)

    for part in found:
        part = replace(part, graph=replace(part.graph, inputs=sized(part.graph.inputs)))
        examples = (x.to(network.device) for x in part.examples(1, side, side))
        with torch.inference_mode():
            results = part.stage(network)(*examples)
        for port, x in zip(part.graph.outputs, results, strict=True):
            sizes[port.name] = x.shape[1], side // x.shape[2]
        known.append(replace(part, graph=replace(part.graph, outputs=sized(part.graph.outputs))))
    return known


def _part(
    name: GraphName,
    function: Callable[..., Tensors],
    inputs: list[str],
    outputs: list[str],
    state: tuple[State, ...] = (),
    reach: int = 0,
) -> Part:
    """`reach` is that of the last input."""
    ports = [Port(name, 0, 0) for name in inputs]
    ports[-1] = replace(ports[-1], reach=reach)
    return Part(Graph(name, tuple(ports), tuple(Port(name, 0, 0) for name in outputs), state), function)


def _frame_by_frame(stage: Callable[[Tensor], Tensors], own_frames: int = 1) -> Callable[[Tensor], Tensors]:
    """`extract` of a network without the axis of time, and without the frames, which it gives back first."""
    return lambda frames: tuple(x.squeeze(1) for x in stage(frames.unsqueeze(1))[own_frames:])


def _reconstruct(network: Deblurrer) -> Callable[..., Tensors]:
    def function(frames: Tensor, *latents: Tensor) -> Tensors:
        return (network.reconstruct((frames.unsqueeze(1), torch.cat(latents, 1).unsqueeze(1))).squeeze(1),)

    return function


def _reads(refiner: Refiner | None, prefix: str = "") -> list[str]:
    """Names of what `Refiner.read` gives."""
    if refiner is None:
        return []
    pairs = ((refiner.reads_current, "ping"), (refiner.asks_frame, "query"))
    return [f"{prefix}{name}" for wanted, name in pairs if wanted]


def _pahs(network: Deblurrer) -> list[Part]:
    assert isinstance(network, PAHS)
    cells: list[tuple[GraphName, Cell]] = [("forward", network.forward_cell)]
    if network.backward_cell is not None:
        cells.append(("backward", network.backward_cell))
    c, hidden = network.config.width, network.config.hidden
    steps, features, latents = [], [], []
    for direction, cell in cells:
        reads = [f"{direction}_fuse", *_reads(cell.refiner, f"{direction}_")]
        f_L, h = f"{direction}_f_L", f"{direction}_h"
        state = (State(f"{f_L}_before", c, 4, f_L), State(f"{h}_before", hidden, 4, h))
        steps.append(_part(direction, _pahs_step(cell, len(reads)), reads, [f_L, h], state))
        features += reads
        latents.append(f_L)
    return [
        _part("extract", _frame_by_frame(network.extract), [FRAMES], features),
        *steps,
        _part("reconstruct", _reconstruct(network), [FRAMES, *latents], [RESTORED]),
    ]


def _pahs_step(cell: Cell, reads: int) -> Callable[..., Tensors]:
    return lambda *inputs: cell.step(inputs[:reads], inputs[reads:])


def _lstm(network: Deblurrer) -> list[Part]:
    assert isinstance(network, LSTM)
    reads = _reads(network.refiner)

    def step(x: Tensor, *others: Tensor) -> Tensors:
        h, c, *past = others[len(reads) :]
        if network.refiner is not None:
            h = network.refiner.step(others[: len(reads)], past[0], h)
        h, c = network.gates(x, h, c)
        return (h, c) if network.refiner is None else (h, c, network.residual(h))

    names = ["h", "c"] if network.refiner is None else ["h", "c", "f_L"]
    state = tuple(State(f"{name}_before", network.hidden, 4, name) for name in names)
    return [
        _part("extract", _frame_by_frame(network.extract), [FRAMES], ["x", *reads]),
        _part("forward", step, ["x", *reads], names, state),
        _part(
            "reconstruct",
            _reconstruct(network),
            [FRAMES, "h" if network.refiner is None else "f_L"],
            [RESTORED],
        ),
    ]


def _ifirnn(network: Deblurrer) -> list[Part]:
    assert isinstance(network, IFIRNN)
    width = network.config.width
    features = ["f_B", *(["opening_f_B"] if network.opening is not None else []), *_reads(network.refiner)]
    others = len(features) - 1

    def step(f_B: Tensor, *rest: Tensor) -> Tensors:
        f_L, h = rest[others:]
        return network.step(f_B, rest[:others], f_L, h)

    state = (State("f_L_before", 4 * width, 4, "f_L"), State("h_before", width, 4, "h"))
    return [
        _part("extract", _frame_by_frame(network.extract), [FRAMES], features),
        _part("forward", step, features, ["f_L", "h"], state),
        _part("reconstruct", _reconstruct(network), [FRAMES, "f_L"], [RESTORED]),
    ]


def _ovd(network: Deblurrer) -> list[Part]:
    """The encoder reads a window of frames, so `extract` does."""
    assert isinstance(network, OVD)
    width, reads = network.config.width, _reads(network.refiner)

    def extract(frames: Tensor) -> Tensors:
        f_B = network.encoder(frames.to(network.to_feature.weight.dtype))
        return (f_B, *(network.refiner.read(f_B) if network.refiner is not None else ()))

    def step(f_B: Tensor, *others: Tensor) -> Tensors:
        f, h = others[len(reads) :]
        return network.step(f_B, others[: len(reads)], f, h)

    state = (State("f_before", width // 2, 2, "f"), State("h_before", width, 2, "h"))
    return [
        _part("extract", extract, [FRAMES], ["f_B", *reads], reach=OVD_REACH),
        _part("forward", step, ["f_B", *reads], ["d", "f", "h"], state),
        _part("reconstruct", _reconstruct(network), [FRAMES, "d"], [RESTORED]),
    ]


def _stfan(network: Deblurrer) -> list[Part]:
    """The decoder is part of the recurrence: a step restores its frame."""
    assert isinstance(network, STFAN)
    deep, reads = 4 * network.config.width, _reads(network.refiner)

    def step(frames: Tensor, E: Tensor, *others: Tensor) -> Tensors:
        before, restored_before, fused = others[len(reads) :]
        fused = network.step(torch.cat([frames, before, restored_before], 1), E, others[: len(reads)], fused)
        return frames + network.decoder(fused).to(frames.dtype), fused

    state = (
        State("frames_before", 3, 1, FRAMES, (FRAMES,)),
        State("restored_before", 3, 1, RESTORED, (FRAMES,)),
        State("fused_before", 2 * deep, 4, "fused", ("E", "E")),
    )
    return [
        _part("extract", _frame_by_frame(network.extract), [FRAMES], ["E", *reads]),
        _part("forward", step, [FRAMES, "E", *reads], [RESTORED, "fused"], state),
    ]


def _estrnn(network: Deblurrer) -> list[Part]:
    """The attention reads a window of H, so `reconstruct` does."""
    assert isinstance(network, ESTRNN)
    n = network.config.width

    def step(f_B: Tensor, s: Tensor) -> Tensors:
        H = network.residual(torch.cat([f_B, s], 1))
        return H, network.to_hidden(H)

    def reconstruct(frames: Tensor, window: Tensor) -> Tensors:
        fused = network.attention(list(window.chunk(2 * ESTRNN_REACH + 1, 1)))
        return (network.reconstruct((frames.unsqueeze(1), fused.unsqueeze(1))).squeeze(1),)

    return [
        _part("extract", _frame_by_frame(network.extract), [FRAMES], ["f_B"]),
        _part("forward", step, ["f_B"], ["H", "s"], (State("s_before", n, 4, "s"),)),
        _part("reconstruct", reconstruct, [FRAMES, "H"], [RESTORED], reach=ESTRNN_REACH),
    ]


_MAKERS: dict[type[Deblurrer], Callable[[Deblurrer], list[Part]]] = {
    PAHS: _pahs,
    LSTM: _lstm,
    IFIRNN: _ifirnn,
    OVD: _ovd,
    STFAN: _stfan,
    ESTRNN: _estrnn,
}
