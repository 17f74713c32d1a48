"""The hand-written gradients of `pahs.kernels.training`, against autograd in float64."""

import pytest
import torch
from torch import Tensor

from pahs.kernels import training
from pahs.networks.blocks import ResidualBlock
from pahs.networks.pprnn import PPRNN, Inputs, Order


def gradients(y: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    found = torch.autograd.grad((y * weight).sum(), wanted, allow_unused=True)
    return [y, *(x for x in found if x is not None)]


def test_a_residual_block_has_autograds_gradients() -> None:
    block = ResidualBlock(16).double()
    x = torch.randn(2, 16, 5, 8, dtype=torch.float64, requires_grad=True)
    wanted = [x, *block.parameters()]
    fused = gradients(training.residual_block(block.first, block.second, x), wanted)
    for ours, plain in zip(fused, gradients(block(x), wanted), strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("inputs", ["both", "current", "past"])
@pytest.mark.parametrize("order", ["current-first", "past-first"])
def test_a_ping_pong_recurrence_has_autograds_gradients(inputs: Inputs, order: Order) -> None:
    network = PPRNN(24, 16, 2, inputs, order).double()
    h, current, past = (torch.randn(2, 16, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    given = (None if inputs == "past" else current, None if inputs == "current" else past)
    reads = [x for x in (given if order == "current-first" else given[::-1]) if x is not None]
    wanted = [h, *reads, network.mix.weight, *network.residual.parameters(), *network.out.parameters()]
    block = network.residual
    fused = training.ping_pong(h, reads, 4, network.mix.second(), block.first, block.second, network.out)
    plain = network(*given, h)
    for ours, theirs in zip(gradients(fused, wanted), gradients(plain, wanted), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_compiler_takes_the_operators() -> None:
    def last(*shape: int) -> Tensor:
        x = 0.1 * torch.randn(shape, dtype=torch.float64)
        return x.contiguous(memory_format=torch.channels_last).requires_grad_()

    x, weights = (
        last(2, 16, 5, 8),
        [last(16, 16, 3, 3), torch.randn(16, dtype=torch.float64, requires_grad=True)],
    )
    torch.library.opcheck(training.residual_block_op, (x, *weights, *weights))
    reads = [last(2, 16, 5, 8), last(2, 16, 5, 8)]
    torch.library.opcheck(training.ping_pong_op, (x, reads, weights[0], *weights, *weights, *weights, 4))


def test_compiled_gradients_are_the_same() -> None:
    network = PPRNN(24, 16, 2, "both", "current-first").double()
    h, current, past = (torch.randn(2, 16, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    block = network.residual

    def fused(h: Tensor, current: Tensor, past: Tensor) -> Tensor:
        mix = network.mix.second()
        h = training.ping_pong(h, [current, past], 4, mix, block.first, block.second, network.out)
        return training.residual_block(block.first, block.second, h)

    wanted = [h, current, past, *network.parameters()]
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)(h, current, past)
    for ours, theirs in zip(
        gradients(compiled, wanted), gradients(block(network(current, past, h)), wanted), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
