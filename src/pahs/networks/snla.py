"""Selective Non-Local Attention (paper, section 3.2; supplementary table "SNLA" and algorithm 2).

    (q, k, v) = (Q(f_B), K(h), V(h))                      4x4 convolutions of stride 4
    S_NL  = softmax(q k^T)                                unscaled, as in the equation
    S_Sel = sigmoid(FC(pool(q k^T)))                      one number per query
    Att   = D(S_Sel * S_NL v)                             two transposed convolutions
    h~    = h + conv1x1([h, Att])

Neither product builds the N x N map. S_Sel scales whole rows, so it leaves the sum over keys: S_Sel * (S_NL v). And
the average of a row of q k^T over the keys is q . mean(k). Both are exact, and memory is linear in the pixels.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pahs.kernels import ops
from pahs.networks.blocks import Conv, double

Attention = Literal["none", "non-local", "selective"]
Query = Literal["frame", "hidden"]

STRIDE = 4
FILTER_WIDTH = 64
"""Units in both hidden layers of the selection, unless the configuration says otherwise."""


def tokens(x: Tensor) -> Tensor:
    """(B, C, h, w) -> (B, h w, C), each token in one piece: the fused CPU kernel takes no other."""
    return x.flatten(2).transpose(1, 2).contiguous()


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T) v for (B, N, C) tokens, without the N x N map."""
    # The fused kernels exist for four dimensions only: three would fall back to the full map.
    y = F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), scale=1.0)
    return y.squeeze(1)


class SNLA(nn.Module):
    """Moves what the hidden state knows to where the current frame needs it."""

    def __init__(
        self, feature: int, hidden: int, selective: bool, query: Query, filter_width: int = FILTER_WIDTH
    ) -> None:
        super().__init__()
        self.query = query
        self.to_query = Conv(feature if query == "frame" else hidden, hidden, STRIDE, STRIDE)
        self.to_key = Conv(hidden, hidden, STRIDE, STRIDE)
        self.to_value = Conv(hidden, hidden, STRIDE, STRIDE)
        self.filter: nn.Sequential | None = None
        if selective:
            widths = (1, filter_width, filter_width, 1)
            first, second, last = (nn.Linear(*pair) for pair in pairwise(widths))
            self.filter = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
        self.enlarge = nn.Sequential(double(hidden, hidden), double(hidden, hidden))
        self.merge = Conv(2 * hidden, hidden, 1)

    def forward(self, query: Tensor | None, h: Tensor) -> Tensor:
        """`query` is `to_query(f_B)`, computed ahead; None when the hidden state asks for itself."""
        q = tokens(self.to_query(h) if query is None else query)
        k, v = tokens(self.to_key(h)), tokens(self.to_value(h))
        found = attend(q, k, v)
        if self.filter is not None:
            found = ops.select(found, q, k, self.filter)
        grid = found.transpose(1, 2).reshape(*h.shape[:2], h.shape[2] // STRIDE, h.shape[3] // STRIDE)
        return ops.conv_add(self.merge, torch.cat([h, self.enlarge(grid)], 1), h)
