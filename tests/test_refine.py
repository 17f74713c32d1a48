"""The reusable module inside somebody else's network."""

import pytest
import torch

from pahs.networks import RefineConfig, Refiner


def test_features_of_other_widths_are_adapted() -> None:
    refiner = Refiner(feature=15, latent=20, hidden=5)
    h = refiner(torch.randn(2, 15, 8, 12), torch.randn(2, 20, 8, 12), torch.randn(2, 5, 8, 12))
    assert h.shape == (2, 5, 8, 12)
    h.square().mean().backward()
    unused = [name for name, p in refiner.named_parameters() if p.grad is None or not p.grad.any()]
    assert not unused


@pytest.mark.parametrize("inputs", ["both", "current", "past", "none"])
@pytest.mark.parametrize("attention", ["none", "non-local", "selective"])
@pytest.mark.parametrize("query", ["frame", "hidden"])
def test_only_what_is_switched_on_matters(inputs: str, attention: str, query: str) -> None:
    config = RefineConfig(2, inputs, "current-first", attention, query)  # type: ignore[arg-type]
    refiner = Refiner(6, 6, 3, config).double()
    f_B, f_L, h = (torch.randn(1, c, 8, 8, dtype=torch.float64, requires_grad=True) for c in (6, 6, 3))
    grads = torch.autograd.grad(refiner(f_B, f_L, h).sum(), (f_B, f_L, h), allow_unused=True)
    reads_current = inputs in ("both", "current") or (attention != "none" and query == "frame")
    reads_past = inputs in ("both", "past")
    assert [g is not None and bool(g.any()) for g in grads] == [reads_current, reads_past, True]


def test_nothing_switched_on_changes_nothing() -> None:
    refiner = Refiner(6, 6, 3, RefineConfig(ping_pongs=0, attention="none"))
    h = torch.randn(1, 3, 8, 8)
    assert torch.equal(refiner(torch.randn(1, 6, 8, 8), torch.randn(1, 6, 8, 8), h), h)
    assert not list(refiner.parameters())


def test_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="ping_pongs is -1"):
        RefineConfig(ping_pongs=-1)
