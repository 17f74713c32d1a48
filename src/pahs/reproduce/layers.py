"""The paper's layer tables, checked against the network that is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pahs.networks import PAHS, PAHSConfig
from pahs.reproduce.paper import PaperTable, paper

HEIGHT, WIDTH = 64, 96


@dataclass(frozen=True)
class LayerTable:
    """A layer table with what was built, row by row."""

    label: str
    number: str
    title: str
    rows: tuple[tuple[str, ...], ...]


Built = tuple[nn.Module | None, Tensor]
"""A layer (None: an operation without weights) and what comes out of it."""


def layer_tables(width: int = 192) -> list[LayerTable]:
    """Every layer table of the paper; shapes are computed without values, on the meta device."""
    with torch.device("meta"), torch.no_grad():
        network, h, w = PAHSConfig(width=width).build(), HEIGHT // 4, WIDTH // 4
        built = {
            "sup_tab:feature_extractor": _through(
                network.forward_extractor, torch.empty(1, 3, HEIGHT, WIDTH)
            ),
            "sup_tab:reconstructor": _through(network.reconstructor, torch.empty(1, 2 * width, h, w)),
            "sup_tab:hidden_state_extractor": _through(
                network.forward_cell.to_hidden, torch.empty(1, width, h, w)
            ),
            "sup_tab:pprnn": _pprnn(network, width),
            "sup_tab:snla": _snla(network, width),
        }
        return [_table(paper().layers[label], list(layers), width) for label, layers in built.items()]


def _table(printed: PaperTable, built: Sequence[Built], width: int) -> LayerTable:
    rows = []
    for row, (layer, y) in zip(printed.rows, built, strict=True):
        name, kernel, stride, channels, scale = (str(x) for x in row)
        agrees = _sizes(y, width) == (_channels(channels, width, int(scale)), int(scale))
        if layer is not None and int(kernel):
            agrees &= _kernel(layer) == (int(kernel), int(stride))
        rows.append((name, kernel, stride, channels, scale, _words(y), "yes" if agrees else "**no**"))
    return LayerTable(printed.label, printed.number, printed.title, tuple(rows))


def _channels(text: str, c: int, scale: int) -> int:
    """Channels, or the width of a matrix over tokens."""
    tokens = (HEIGHT // scale) * (WIDTH // scale)
    last = text.rpartition(" x ")[2]
    return {"c": c, "c/3": c // 3, "2c/3": 2 * c // 3, "4c/3": 4 * c // 3, "N": tokens}.get(last) or int(last)


def _sizes(y: Tensor, width: int) -> tuple[int, int]:
    if y.ndim == 4:
        return y.shape[1], HEIGHT // y.shape[2]
    side = round((HEIGHT * WIDTH / y.shape[1]) ** 0.5)
    return y.shape[2], side


def _kernel(layer: nn.Module) -> tuple[int, int]:
    first: Any = next(m for m in layer.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d))
    return first.kernel_size[0], first.stride[0]


def _words(y: Tensor) -> str:
    return "x".join(str(n) for n in y.shape[1:])


def _through(layers: Iterable[nn.Module], x: Tensor) -> Iterator[Built]:
    for layer in layers:
        x = layer(x)
        yield layer, x


def _pprnn(network: PAHS, c: int) -> Iterator[Built]:
    pprnn = network.forward_cell.refiner.pprnn
    assert pprnn is not None
    x = torch.empty(1, c + c // 3, HEIGHT // 4, WIDTH // 4)
    yield None, x
    yield from _through((pprnn.mix, pprnn.residual, pprnn.out), x)


def _snla(network: PAHS, c: int) -> Iterator[Built]:
    snla = network.forward_cell.refiner.snla
    assert snla is not None and snla.filter is not None
    f_B, h = (torch.empty(1, n, HEIGHT // 4, WIDTH // 4) for n in (c, c // 3))
    for layer, x in ((snla.to_query, f_B), (snla.to_key, h), (snla.to_value, h)):
        yield layer, layer(x)
    q, k, v = (x.flatten(2).transpose(1, 2) for x in (snla.to_query(f_B), snla.to_key(h), snla.to_value(h)))
    scores = q @ k.transpose(1, 2)
    pooled = scores.mean(2, keepdim=True)
    selected = snla.filter(pooled)
    shares = selected.sigmoid() * scores.softmax(2)
    found = shares @ v
    grid = found.transpose(1, 2).reshape(1, c // 3, HEIGHT // 16, WIDTH // 16)
    large = snla.enlarge(grid)
    both = torch.cat([h, large], 1)
    for x in (q, scores, scores.softmax(2), pooled):
        yield None, x
    yield snla.filter, selected
    for x in (selected.sigmoid(), shares, found, grid):
        yield None, x
    yield snla.enlarge, large
    yield None, both
    yield snla.merge, snla.merge(both)
