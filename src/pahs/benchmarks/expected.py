"""`pahs bench --expected`: frames per second that other cards of NVIDIA should reach, computed from those of an H200.

A network is limited by arithmetic or by memory. Both limits are scaled from the H200, measured with the kernels that
all cards have, by the published rates of a card; the lower one counts. None of these cards has been measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache

from pahs.benchmarks.options import BenchConfig
from pahs.benchmarks.stages import count_work
from pahs.engine.plan import MAX_CHUNK
from pahs.errors import PahsError
from pahs.evaluation.tables import table
from pahs.networks import PRESETS


@dataclass(frozen=True)
class Card:
    """A card's published rates."""

    name: str
    capability: str
    tflops: float
    """bf16 products of dense matrices, summed in float32."""
    bandwidth: float
    """GB/s of its memory."""
    memory: int
    """GB."""


MEASURED_ON = Card("NVIDIA H200", "9.0", 989, 4800, 141)
CARDS = (
    Card("A100", "8.0", 312, 1555, 40),
    Card("GeForce RTX 3060", "8.6", 25.5, 360, 12),
    Card("GeForce RTX 3080", "8.6", 59.5, 760, 10),
    Card("GeForce RTX 3090", "8.6", 71.2, 936, 24),
    Card("GeForce RTX 4060", "8.9", 30.2, 272, 8),
    Card("GeForce RTX 4070", "8.9", 58.3, 504, 12),
    Card("GeForce RTX 4080", "8.9", 97.5, 717, 16),
    Card("GeForce RTX 4090", "8.9", 165.2, 1008, 24),
    Card("GeForce RTX 5080", "12.0", 112.6, 960, 16),
    Card("GeForce RTX 5090", "12.0", 209.5, 1792, 32),
)
MATRIX_TFLOPS = 746.0
"""What the H200 reached in a large matrix product; cards are taken to reach the same share of their published rate."""
WITHOUT_HOPPER = {"pahs": 78.0, "pahs-s": 234.0}
"""Frames/s at 1280x720 on the H200 before it had a kernel of its own: those of Triton and cuDNN run on all cards."""
SIZE = 1280, 720


@dataclass(frozen=True)
class Expected:
    """One card and one network."""

    card: Card
    model: str
    by_arithmetic: float
    """Frames per second if arithmetic is the limit."""
    by_memory: float

    @property
    def speed(self) -> float:
        return min(self.by_arithmetic, self.by_memory)


def share_of_matrix_rate(model: str) -> float:
    """The share of the H200's matrix rate that the network reached with the kernels of all cards."""
    return WITHOUT_HOPPER[model] * operations(model, *SIZE) / (MATRIX_TFLOPS * 1e12)


@cache
def operations(model: str, width: int, height: int) -> float:
    """Counted operations per frame of a long video, in the chunks of a GPU."""
    network = PRESETS[model].config.build()
    chunk = MAX_CHUNK["cuda"]
    return count_work(network, height, width).frame((chunk + network.contract.look_ahead) / chunk)


def expect(model: str, width: int, height: int) -> list[Expected]:
    """The speeds of all cards for a network whose speed was measured on the H200."""
    if model not in WITHOUT_HOPPER:
        raise PahsError(f"--model {model}: --expected computes {' and '.join(WITHOUT_HOPPER)}")
    reached = share_of_matrix_rate(model) * MATRIX_TFLOPS / MEASURED_ON.tflops * 1e12
    flops = operations(model, width, height)
    pixels = SIZE[0] * SIZE[1] / (width * height)
    return [
        Expected(
            card,
            model,
            by_arithmetic=reached * card.tflops / flops,
            by_memory=WITHOUT_HOPPER[model] * pixels * card.bandwidth / MEASURED_ON.bandwidth,
        )
        for card in CARDS
    ]


def markdown(names: tuple[str, ...], config: BenchConfig) -> str:
    """A row for each card, a column for each network."""
    columns = [expect(name, config.width, config.height) for name in names]
    heads = " | ".join(f"{name}, frames/s" for name in names)
    rows = (
        f"{card.name} | {card.capability} | {card.tflops:g} | {card.bandwidth:g} | {card.memory} | "
        + " | ".join(f"{x.speed:.1f}" for x in expected)
        for card, *expected in zip(CARDS, *columns, strict=True)
    )
    shares = " and ".join(f"{name} {100 * share_of_matrix_rate(name):.0f} %" for name in names)
    lines = table(f"card | capability | bf16 TFLOP/s | GB/s | GB | {heads}", rows, text=1)
    return "\n".join([
        *lines,
        "",
        f"Computed, not measured: bf16, {config.width}x{config.height}. On an {MEASURED_ON.name}, with the kernels "
        f"that these cards run too, {shares} of the rate of a large matrix product was measured; that rate was "
        f"{100 * MATRIX_TFLOPS / MEASURED_ON.tflops:.0f} % of the published one. "
        f"`pahs bench --expected --size {config.width} {config.height}`",
    ])  # fmt: skip


def numbers(names: tuple[str, ...], config: BenchConfig) -> dict[str, object]:
    rows = [row for name in names for row in expect(name, config.width, config.height)]
    return {"computed": [{**asdict(row), "frames_per_second": row.speed} for row in rows]}
