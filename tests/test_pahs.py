"""The network against the paper: sizes, the cell written out, directions, and ablations."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pahs.networks import PAHS, PRESETS, PAHSConfig, RefineConfig
from pahs.networks.pahs import Cell

TINY = PAHSConfig(width=12)


def millions(config: PAHSConfig) -> float:
    with torch.device("meta"):
        return sum(p.numel() for p in config.build().parameters()) / 1e6


def test_parameters_of_the_presets() -> None:
    paper = PRESETS["pahs-paper"].config
    assert isinstance(paper, PAHSConfig)
    assert millions(paper) == pytest.approx(20.25, rel=0.01)
    assert millions(replace(paper, width=92)) == pytest.approx(4.62, rel=0.01)
    assert millions(replace(paper, shared_extractor=True)) == pytest.approx(14.3, rel=0.01)
    assert paper.refine == RefineConfig(4, "both", "current-first", "selective", "frame")


def literal_sweep(cell: Cell, f_B: list[Tensor]) -> list[Tensor]:
    """The recurrence of one direction as the paper writes it, nothing computed ahead."""
    f_L = torch.zeros_like(f_B[0])
    h = torch.zeros_like(f_B[0][:, : cell.hidden])
    outputs = []
    for f in f_B:
        h = cell.refiner(f, f_L, h)
        f_L = cell.residual(cell.fuse(torch.cat([f, h], 1)))
        h = cell.to_hidden(f_L)
        outputs.append(f_L)
    return outputs


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("skip", [False, True])
def test_equals_the_paper_frame_by_frame(shared: bool, skip: bool) -> None:
    net = replace(TINY, shared_extractor=shared, global_skip=skip).build().double()
    assert net.backward_cell is not None
    clip = torch.rand(2, 4, 3, 32, 16, dtype=torch.float64)
    frames = list(clip.unbind(1))
    past = literal_sweep(net.forward_cell, [net.forward_extractor(x) for x in frames])
    other = net.backward_extractor or net.forward_extractor
    future = literal_sweep(net.backward_cell, [other(x) for x in reversed(frames)])[::-1]
    expected = [net.reconstructor(torch.cat(pair, 1)) for pair in zip(past, future, strict=True)]
    if skip:
        expected = [a + b for a, b in zip(expected, frames, strict=True)]
    torch.testing.assert_close(net(clip), torch.stack(expected, 1), rtol=0, atol=1e-10)


def changed_frames(net: PAHS, at: int, length: int = 5) -> list[bool]:
    """Which output frames notice a change of input frame `at`."""
    clip = torch.rand(1, length, 3, 16, 16, dtype=torch.float64)
    other = clip.clone()
    other[:, at] = torch.rand_like(other[:, at])
    with torch.no_grad():
        return (net(clip) - net(other)).abs().amax((0, 2, 3, 4)).gt(0).tolist()


def test_one_direction_is_causal_and_two_see_everything() -> None:
    causal = replace(TINY, bidirectional=False).build().double()
    assert changed_frames(causal, 2) == [False, False, True, True, True]
    assert causal.contract.family == "recurrent"
    assert causal.contract.look_ahead == 0
    both = TINY.build().double()
    assert changed_frames(both, 2) == [True] * 5
    assert both.contract.look_ahead == 19


def test_every_parameter_learns() -> None:
    net = TINY.build()
    net(torch.rand(2, 3, 3, 16, 32)).square().mean().backward()
    assert not [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]


def test_clips_of_a_batch_do_not_mix() -> None:
    net = TINY.build().double()
    clips = torch.rand(2, 3, 3, 16, 32, dtype=torch.float64)
    with torch.no_grad():
        singly = torch.cat([net(clip[None]) for clip in clips])
        torch.testing.assert_close(net(clips), singly, rtol=0, atol=1e-12)


def test_modules_off_is_the_papers_baseline() -> None:
    """Table "Synergy": the baseline has neither module; each adds its own parameters and nothing else."""
    base = replace(TINY, refine=RefineConfig(ping_pongs=0, attention="none"))
    with_pprnn = replace(TINY, refine=RefineConfig(attention="none"))
    with_snla = replace(TINY, refine=RefineConfig(ping_pongs=0))
    assert millions(TINY) - millions(base) == pytest.approx(
        (millions(with_pprnn) - millions(base)) + (millions(with_snla) - millions(base)), abs=1e-9
    )
    assert not any("pprnn" in name or "snla" in name for name, _ in base.build().named_parameters())


def test_frames_keep_their_precision_beside_narrower_weights() -> None:
    net = replace(TINY, global_skip=True).build()
    for parameter in net.reconstructor[-1].parameters():
        torch.nn.init.zeros_(parameter)
    frames = torch.rand(1, 2, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(net(frames), frames)


@pytest.mark.parametrize("wrong", [{"width": 3}, {"look_ahead": -1}])
def test_impossible_configurations_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PAHSConfig(**wrong)  # type: ignore[arg-type]
