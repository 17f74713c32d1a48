"""PPRNN and SNLA as one module that any recurrent network can hold.

    refiner = Refiner(feature=60, latent=80, hidden=20)
    h = refiner(f_B, f_L, h)            # before the network uses its hidden state

In a loop over time, call `read(f_B)` once for all frames, then `step` per frame: the same result, less work.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from pahs.configs import at_least
from pahs.networks.contract import Tensors
from pahs.networks.pprnn import PPRNN, Inputs, Order
from pahs.networks.snla import FILTER_WIDTH, SNLA, Attention, Query


@dataclass(frozen=True)
class RefineConfig:
    """How a hidden state is refined before it is used; the defaults are the paper's."""

    ping_pongs: int = 4
    """Recurrences of PPRNN; 0 leaves it out."""
    inputs: Inputs = "both"
    """Which features PPRNN reads: f_B and f_L, f_B only (current), f_L only (past), or none."""
    order: Order = "current-first"
    """Which of the two PPRNN reads first."""
    attention: Attention = "selective"
    """none; non-local: without S_Sel; selective: SNLA."""
    query: Query = "frame"
    """Where SNLA's query comes from: f_B, or the hidden state itself."""
    filter_width: int = FILTER_WIDTH
    """Units in both hidden layers of SNLA's selection; the paper says no more than "FC"."""

    def __post_init__(self) -> None:
        at_least(0, self, "ping_pongs")
        at_least(1, self, "filter_width")

    @property
    def uses_pprnn(self) -> bool:
        return self.ping_pongs > 0 and self.inputs != "none"


class Refiner(nn.Module):
    """h_{t-1} -> h~_{t-1}, given f_B of this frame and f_L of the last one."""

    def __init__(self, feature: int, latent: int, hidden: int, config: RefineConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or RefineConfig()
        self.reads_current = config.uses_pprnn and config.inputs in ("both", "current")
        self.reads_past = config.uses_pprnn and config.inputs in ("both", "past")
        self.asks_frame = config.attention != "none" and config.query == "frame"
        # M_P is one block for both features, so a network whose f_L is wider or narrower than its f_B adapts it.
        self.match = nn.Conv2d(latent, feature, 1) if self.reads_past and latent != feature else nn.Identity()
        self.pprnn: PPRNN | None = None
        if config.uses_pprnn:
            self.pprnn = PPRNN(feature, hidden, config.ping_pongs, config.inputs, config.order)
        self.snla: SNLA | None = None
        if config.attention != "none":
            selective = config.attention == "selective"
            self.snla = SNLA(feature, hidden, selective, config.query, config.filter_width)

    def read(self, f_B: Tensor) -> Tensors:
        """Everything that depends on f_B alone: nothing, PPRNN's reading, SNLA's query, or both."""
        parts: list[Tensor] = []
        if self.pprnn is not None and self.reads_current:
            parts.append(self.pprnn.read(f_B))
        if self.snla is not None and self.asks_frame:
            parts.append(self.snla.to_query(f_B))
        return tuple(parts)

    def step(self, read: Tensors, f_L: Tensor, h: Tensor) -> Tensor:
        parts = iter(read)
        if self.pprnn is not None:
            current = next(parts) if self.reads_current else None
            past = self.pprnn.read(self.match(f_L)) if self.reads_past else None
            h = self.pprnn(current, past, h)
        if self.snla is not None:
            h = self.snla(next(parts) if self.asks_frame else None, h)
        return h

    def forward(self, f_B: Tensor, f_L: Tensor, h: Tensor) -> Tensor:
        return self.step(self.read(f_B), f_L, h)
