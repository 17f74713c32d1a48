"""First weights from a narrower network: the wider one begins with the same function.

Every output channel of a layer is copied until the layer is as wide as it should be. A layer that reads copies splits
its weight among them, w = a w + (1 - a) w, in unequal random parts of its own, so that copies do not stay twins while
they learn. A concatenation is split part by part. SNLA's dot product would grow by the number of copies, so its query
is divided by that number.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import torch
from torch import Tensor, nn

from pahs.networks import PAHS, PAHSConfig
from pahs.networks.blocks import SplitConv
from pahs.networks.snla import SNLA

LEAST, MOST = 0.25, 0.75
"""Range of the random parts before they are made to sum to one; of two copies, each gets a part in this range."""


def obstacle(narrow: PAHSConfig, wide: PAHSConfig) -> str:
    """What keeps the one network from becoming the other; empty: nothing."""
    if narrow.width > wide.width:
        return f"its width is {narrow.width}, more than the {wide.width} of the recipe's network"
    if wide.shared_extractor and not narrow.shared_extractor:
        return "it has two extractors, the recipe's network has one"
    # These may differ.
    alike = replace(
        narrow, width=wide.width, shared_extractor=wide.shared_extractor, look_ahead=wide.look_ahead
    )
    theirs, ours = ({**asdict(x), **asdict(x.refine)} for x in (alike, wide))
    for name in theirs:
        if name != "refine" and theirs[name] != ours[name]:
            return f"its {name} is {theirs[name]}, that of the recipe's network is {ours[name]}"
    return ""


@torch.no_grad()
def widen(narrow: PAHS, wide: PAHS, seed: int) -> None:
    """Give `wide` the function of `narrow`, whose configuration must have no `obstacle`."""
    generator = torch.Generator().manual_seed(seed)
    source = dict(narrow.named_modules())
    for name, layer in wide.named_modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            # Two extractors that come from one begin as copies.
            old = source.get(name) or source[name.replace("backward_extractor", "forward_extractor")]
            assert isinstance(old, type(layer)) and layer.bias is not None and old.bias is not None
            outputs = copies(old.bias.shape[0], layer.bias.shape[0])
            inputs = _concatenated(_parts(narrow, name, old), _parts(wide, name, layer))
            transposed = isinstance(layer, nn.ConvTranspose2d)
            weight = old.weight.transpose(0, 1) if transposed else old.weight
            share = shares(len(outputs), inputs, generator)
            split = weight.double()[outputs][:, inputs] * share.view(*share.shape, *[1] * (weight.dim() - 2))
            layer.weight.copy_(split.transpose(0, 1) if transposed else split)
            layer.bias.copy_(old.bias[outputs])
    for module in wide.modules():
        if isinstance(module, SNLA):
            query = module.to_query
            channels = copies(narrow.config.hidden, wide.config.hidden)
            often = torch.bincount(channels)[channels]
            query.weight.div_(often.view(-1, 1, 1, 1))
            assert query.bias is not None
            query.bias.div_(often)


def copies(narrow: int, wide: int) -> Tensor:
    """The channel of a narrow layer that each channel of a wide one copies: all equally often, or once more."""
    return torch.arange(wide) % narrow


def shares(outputs: int, inputs: Tensor, generator: torch.Generator) -> Tensor:
    """(outputs, len(inputs)): the part of its weight that an output gives each copy; those of one channel sum to 1."""
    drawn = torch.rand(outputs, len(inputs), generator=generator, dtype=torch.float64)
    parts = LEAST + (MOST - LEAST) * drawn
    sums = torch.zeros(outputs, int(inputs.max()) + 1, dtype=torch.float64).index_add_(1, inputs, parts)
    return parts / sums[:, inputs]


def _parts(network: PAHS, name: str, layer: nn.Module) -> list[int]:
    """The widths of what a layer reads, which may be a concatenation."""
    c, hidden = network.config.width, network.config.hidden
    if isinstance(layer, SplitConv):
        return [c, hidden]  # [f_B or f_L, h]
    if name.endswith("snla.merge"):
        return [hidden, hidden]  # [h, attention]
    if name == "reconstructor.0":
        return [c] * (2 if network.config.bidirectional else 1)  # f_L of each direction
    assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear)
    return [layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels]


def _concatenated(narrow: list[int], wide: list[int]) -> Tensor:
    """`copies` of a concatenation, part by part."""
    parts, first = [], 0
    for n, m in zip(narrow, wide, strict=True):
        parts.append(first + copies(n, m))
        first += n
    return torch.cat(parts)
