"""SNLA against the paper's equations 1 to 3 with the full attention map, and its memory."""

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from pahs.networks.snla import SNLA, attend, tokens


def literal(snla: SNLA, f_B: Tensor, h: Tensor) -> Tensor:
    """Algorithm 2, token by token where it says so, building the N x N maps."""
    rows, columns = h.shape[2] // 4, h.shape[3] // 4
    outputs = []
    for f, state in zip(f_B.split(1), h.split(1), strict=True):
        asking = f if snla.query == "frame" else state
        q, k, v = (
            layer(x)[0].reshape(h.shape[1], -1).T
            for layer, x in ((snla.to_query, asking), (snla.to_key, state), (snla.to_value, state))
        )
        scores = q @ k.T
        S = torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True)
        if snla.filter is not None:
            pooled = scores.mean(1, keepdim=True)
            S = torch.cat([torch.sigmoid(snla.filter(p[None])) for p in pooled]) * S
        found = (S @ v).T.reshape(1, h.shape[1], rows, columns)
        outputs.append(state + snla.merge(torch.cat([state, snla.enlarge(found)], 1)))
    return torch.cat(outputs)


@pytest.mark.parametrize("selective", [True, False])
@pytest.mark.parametrize("query", ["frame", "hidden"])
def test_equals_the_equations_and_their_gradient(selective: bool, query: str) -> None:
    snla = SNLA(9, 6, selective, query).double()  # type: ignore[arg-type]
    f_B = torch.randn(2, 9, 12, 20, dtype=torch.float64, requires_grad=True)
    h = torch.randn(2, 6, 12, 20, dtype=torch.float64, requires_grad=True)
    ours = snla(snla.to_query(f_B) if query == "frame" else None, h)
    theirs = literal(snla, f_B, h)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)

    inputs = [f_B, h, *snla.parameters()]
    probe = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * probe).sum(), inputs, allow_unused=True),
        torch.autograd.grad((theirs * probe).sum(), inputs, allow_unused=True),
        strict=True,
    ):
        if a is None or b is None:
            assert a is b, "one of the two does not depend on an input that the other uses"
        else:
            torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


def test_selection_attenuates_between_nothing_and_all() -> None:
    snla = SNLA(6, 6, True, "frame")
    assert snla.filter is not None
    torch.nn.init.zeros_(snla.filter[-1].weight)
    f_B, h = torch.randn(1, 6, 8, 8), torch.randn(1, 6, 8, 8)
    torch.nn.init.constant_(snla.filter[-1].bias, -100.0)
    q = snla.to_query(f_B)
    closed = snla(q, h)
    torch.nn.init.constant_(snla.filter[-1].bias, 100.0)
    open_ = snla(q, h)
    nothing = h + snla.merge(torch.cat([h, snla.enlarge(torch.zeros_like(q))], 1))
    torch.testing.assert_close(closed, nothing)
    snla.filter = None
    torch.testing.assert_close(open_, snla(q, h))


def peak_bytes(height: int, width: int, layout: torch.memory_format) -> int:
    """Peak of the memory that attention allocates on a map of tokens, in bytes."""
    q, k, v = (torch.randn(1, 8, height, width).to(memory_format=layout) for _ in range(3))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof, torch.no_grad():
        attend(tokens(q), tokens(k), tokens(v))
    now = peak = 0
    for event in prof.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@pytest.mark.slow
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_memory_is_linear_in_the_pixels_up_to_4k(layout: torch.memory_format) -> None:
    sizes = {"360p": (23, 40), "720p": (45, 80), "1080p": (68, 120), "2160p": (135, 240)}
    per_token = {name: peak_bytes(*size, layout) / (size[0] * size[1]) for name, size in sizes.items()}
    full_map = 4 * (135 * 240) ** 2
    assert per_token["2160p"] * 135 * 240 < full_map / 100
    assert per_token["2160p"] < 1.2 * per_token["720p"], per_token
