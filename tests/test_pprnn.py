"""PPRNN against the paper's algorithm 1, written out step by step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pahs.networks.pprnn import PPRNN


def literal_block(pprnn: PPRNN, f: Tensor, h: Tensor) -> Tensor:
    """M_P from the supplementary table: concat, conv, residual block, conv."""
    return pprnn.out(pprnn.residual(pprnn.mix(torch.cat([f, h], 1))))


def literal(pprnn: PPRNN, f_B: Tensor, f_L: Tensor, h: Tensor) -> Tensor:
    for _ in range(pprnn.count):
        g = literal_block(pprnn, f_B, h)
        h = literal_block(pprnn, f_L, g)
    return h


@given(count=st.integers(1, 5), size=st.integers(1, 7))
def test_equals_algorithm_1(count: int, size: int) -> None:
    pprnn = PPRNN(6, 4, count, "both", "current-first").double()
    f_B, f_L = torch.randn(2, 2, 6, size, size + 1, dtype=torch.float64)
    h = torch.randn(2, 4, size, size + 1, dtype=torch.float64)
    torch.testing.assert_close(
        pprnn(pprnn.read(f_B), pprnn.read(f_L), h), literal(pprnn, f_B, f_L, h), rtol=0, atol=1e-12
    )


def test_past_first_swaps_the_two_players() -> None:
    one = PPRNN(6, 4, 2, "both", "current-first").double()
    other = PPRNN(6, 4, 2, "both", "past-first").double()
    other.load_state_dict(one.state_dict())
    f_B, f_L = torch.randn(2, 1, 6, 5, 5, dtype=torch.float64)
    h = torch.randn(1, 4, 5, 5, dtype=torch.float64)
    assert torch.equal(other(other.read(f_B), other.read(f_L), h), one(one.read(f_L), one.read(f_B), h))


@pytest.mark.parametrize("inputs", ["current", "past"])
def test_one_input_makes_as_many_updates_as_two(inputs: str) -> None:
    pprnn = PPRNN(6, 4, 3, inputs, "current-first").double()  # type: ignore[arg-type]
    f = torch.randn(1, 6, 5, 5, dtype=torch.float64)
    h = expected = torch.randn(1, 4, 5, 5, dtype=torch.float64)
    for _ in range(2 * 3):
        expected = literal_block(pprnn, f, expected)
    read = pprnn.read(f)
    got = pprnn(read, None, h) if inputs == "current" else pprnn(None, read, h)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
