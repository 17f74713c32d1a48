"""The windowed systems of the zoo: what every one must do, then how each samples, against naive loops."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pahs.networks.arvo import ARVoConfig
from pahs.networks.contract import ModelConfig
from pahs.networks.edvr import EDVRConfig
from pahs.networks.pwcnet import PWCConfig
from pahs.networks.sampling import (
    DeformableConv,
    correlation_gather,
    cost_volume,
    deformable_conv,
    sample,
    warp,
)
from pahs.networks.tsp import TSP, TSPConfig, sharpness_prior
from zoo import NARROW, build, clip

REACH = {"edvr-l": 2, "edvr-paper": 2, "edvr-m": 2, "tsp": 2, "arvo": 1}
every = pytest.mark.parametrize("name", REACH)


@every
def test_only_the_window_counts(name: str) -> None:
    model, reach = build(name), REACH[name]
    middle = reach + 1
    frames = clip(2 * middle + 1)
    with torch.no_grad():
        exact = model(frames)[:, middle]
        for t in range(2 * middle + 1):
            changed = frames.clone()
            changed[:, t] = 1 - changed[:, t]
            same = torch.equal(model(changed)[:, middle], exact)
            assert same == (abs(t - middle) > reach), t


@every
def test_each_frame_is_what_its_window_alone_gives(name: str) -> None:
    """At the ends of the clip, a window of copies of the nearest frame."""
    model, reach = build(name), REACH[name]
    frames = clip(4)
    with torch.no_grad():
        restored = model(frames)
        for t in range(4):
            window = [min(max(t + step, 0), 3) for step in range(-reach, reach + 1)]
            torch.testing.assert_close(model(frames[:, window])[:, reach], restored[:, t], atol=1e-5, rtol=0)


@every
def test_more_look_ahead_than_the_window_needs_changes_nothing(name: str) -> None:
    model = build(name)
    features = model.extract(clip(6))
    enough = tuple(x[:, : 1 + model.contract.look_ahead] for x in features)
    with torch.no_grad():
        for more, less in zip(
            model.propagate(features, None, 1), model.propagate(enough, None, 1), strict=True
        ):
            for a, b in zip(more, less, strict=True):
                assert torch.equal(a, b)


# Sizes


@pytest.mark.parametrize(
    ("config", "count", "published"),
    [
        (EDVRConfig(), 23_602_019, 23.602),
        (EDVRConfig(width=64, trunk_blocks=10, predeblur=False), 3_373_987, 3.30),
        (TSPConfig(), 16_187_045, 16.2),
        (EDVRConfig(predeblur=False, strided_convs=False), 20_633_827, 20.6),
        (ARVoConfig(), 20_336_771, 20.6),
    ],
)
def test_parameters(config: ModelConfig, count: int, published: float) -> None:
    with torch.device("meta"):
        model = config.build()
    found = sum(p.numel() for p in model.parameters())
    assert found == count
    assert found == pytest.approx(1e6 * published, rel=0.03)


def test_parameters_of_the_parts_of_tsp() -> None:
    with torch.device("meta"):
        model = TSPConfig().build()
    assert sum(p.numel() for p in model.net.parameters()) == 6_812_771
    assert sum(p.numel() for p in model.flow.parameters()) == 9_374_274


@every
def test_contract(name: str) -> None:
    contract = NARROW[name].build().contract
    assert (contract.family, contract.look_ahead) == ("windowed", REACH[name])


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (EDVRConfig, "width", 100),
        (EDVRConfig, "reach", 0),
        (TSPConfig, "width", 0),
        (TSPConfig, "blocks", 0),
        (PWCConfig, "narrow", 17),
        (PWCConfig, "reach", 0),
        (ARVoConfig, "width", 5),
    ],
)
def test_a_wrong_size_is_named(kind: type, field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{field} is {value}; it must"):
        kind(**{field: value})


@pytest.mark.parametrize("kind", [TSPConfig, ARVoConfig])
def test_global_skip_adds_what_the_last_stage_sees(kind: type) -> None:
    narrow = {"width": 6, "flow": PWCConfig(narrow=8, reach=1)} if kind is TSPConfig else {"width": 6}
    model, other = kind(**narrow, global_skip=False).build(), kind(**narrow, global_skip=True).build()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        latents, _ = model.propagate(model.extract(clip(2)), None, 2)
        frames = latents[0][:, :, 3:6] if kind is TSPConfig else latents[0]
        torch.testing.assert_close(other.reconstruct(latents), frames + model.reconstruct(latents))


# TSP's cascade, written out for one window


def test_tsp_is_four_uses_of_one_net() -> None:
    model = build("tsp")
    assert isinstance(model, TSP)
    frames = clip(5)

    def once(images: list[Tensor]) -> Tensor:
        pyramids = [model.flow.pyramid(x) for x in images]
        warped, masks = [images[1]], []
        for i in (0, 2):
            moved, mask = warp(images[i], model.flow(pyramids[1], pyramids[i]))
            warped.append(moved)
            masks.append(mask)
        prior = sharpness_prior(images[1], tuple(warped[1:]), tuple(masks))
        return model.net(torch.cat([warped[1], images[1], warped[2], prior], 1))

    with torch.no_grad():
        first = [once([frames[:, t + step] for step in (-1, 0, 1)]) for t in (1, 2, 3)]
        stages = model.training_outputs(frames)
        torch.testing.assert_close(stages[0][:, 2], first[1], atol=1e-5, rtol=0)
        torch.testing.assert_close(stages[1][:, 2], once(first), atol=1e-5, rtol=0)
        assert torch.equal(stages[1], model(frames))


def test_sharpness_prior_is_one_where_frames_agree_and_zero_outside() -> None:
    frame = clip(1)[:, 0]
    inside = torch.ones(1, 1, 16, 32)
    inside[..., :4] = 0
    prior = sharpness_prior(frame, (frame, frame), (inside, torch.ones_like(inside)))
    assert torch.equal(prior, inside)
    # Neighbours that are a brighter by 0.3 and darker by 0.1: sqrt(3 (0.09 + 0.01) / 2).
    prior = sharpness_prior(frame, (frame + 0.3, frame - 0.1), (torch.ones_like(inside),) * 2)
    torch.testing.assert_close(prior, torch.full_like(prior, math.exp(-math.sqrt(0.15))))


def test_flow_has_the_size_of_the_frame_and_reads_both() -> None:
    torch.manual_seed(0)
    net = PWCConfig(narrow=8, reach=2).build()
    one, other = clip(2, height=20, width=44).unbind(1)
    with torch.no_grad():
        flow = net(net.pyramid(one), net.pyramid(other))
        assert flow.shape == (1, 2, 20, 44)
        assert not torch.allclose(flow, net(net.pyramid(other), net.pyramid(one)))


# Sampling, against loops


def bilinear(image: Tensor, x: float, y: float) -> float:
    """One channel (H, W) at one position, zero outside."""
    height, width = image.shape
    left, top, value = math.floor(x), math.floor(y), 0.0
    for row in (top, top + 1):
        for column in (left, left + 1):
            if 0 <= row < height and 0 <= column < width:
                value += (1 - abs(x - column)) * (1 - abs(y - row)) * image[row, column].item()
    return value


def pixels(*shape: int) -> Iterator[tuple[int, ...]]:
    return iter(map(tuple, torch.cartesian_prod(*map(torch.arange, shape)).tolist()))


def noise(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)


sizes = st.tuples(st.integers(1, 5), st.integers(1, 6))


@given(size=sizes, seed=st.integers(0, 99))
def test_warp_is_the_loop(size: tuple[int, int], seed: int) -> None:
    height, width = size
    x, flow = noise(2, 2, *size, seed=seed), noise(2, 2, *size, scale=2, seed=seed + 1)
    warped, inside = warp(x, flow)
    for b, c, i, j in pixels(2, 2, *size):
        across, down = j + flow[b, 0, i, j].item(), i + flow[b, 1, i, j].item()
        valid = 0 <= across <= width - 1 and 0 <= down <= height - 1
        assert inside[b, 0, i, j] == valid
        expected = bilinear(x[b, c], across, down) if valid else 0.0
        assert warped[b, c, i, j].item() == pytest.approx(expected, abs=1e-9)


def test_warp_by_nothing_and_by_whole_pixels() -> None:
    x = clip(1, height=6, width=640)[:, 0]
    still, inside = warp(x, torch.zeros(1, 2, 6, 640))
    assert inside.all()
    torch.testing.assert_close(still, x, atol=1e-3, rtol=0)
    moved, inside = warp(x, torch.full((1, 2, 6, 640), 2.0))
    assert inside[..., :4, :638].all()
    assert not inside[..., 4:, :].any()
    torch.testing.assert_close(moved[..., :4, :638], x[..., 2:, 2:], atol=1e-3, rtol=0)


def test_positions_are_not_rounded_to_the_precision_of_the_picture() -> None:
    # bfloat16 cannot tell 513 from 512.
    ramp = torch.zeros(1, 1, 1, 1024).bfloat16()
    ramp[..., 513] = 1
    positions = torch.tensor([513.0, 0.0]).reshape(1, 2, 1, 1)
    assert sample(ramp, positions).item() == pytest.approx(1, abs=1e-2)
    assert sample(ramp, positions).dtype == torch.bfloat16


@given(size=sizes, reach=st.integers(1, 4), seed=st.integers(0, 99))
def test_cost_volume_is_the_loop(size: tuple[int, int], reach: int, seed: int) -> None:
    first, second = noise(2, 3, *size, seed=seed), noise(2, 3, *size, seed=seed + 1)
    side = 2 * reach + 1
    expected = torch.zeros(2, side * side, *size, dtype=torch.float64)
    for dy, dx, i, j in pixels(side, side, *size):
        row, column = i + dy - reach, j + dx - reach
        if 0 <= row < size[0] and 0 <= column < size[1]:
            product = first[:, :, i, j] * second[:, :, row, column]
            expected[:, dy * side + dx, i, j] = product.sum(1) / 3
    volume = cost_volume(first, second, reach)
    assert cost_volume(first, second).shape[1] == 81
    torch.testing.assert_close(volume, expected, atol=1e-12, rtol=0)


@given(size=sizes, groups=st.sampled_from([1, 2, 4]), seed=st.integers(0, 99))
def test_deformable_convolution_is_the_loop(size: tuple[int, int], groups: int, seed: int) -> None:
    x, weight, bias = noise(1, 4, *size, seed=seed), noise(2, 4, 3, 3, seed=seed + 1), noise(2, seed=seed + 2)
    offsets = noise(1, groups, 9, 2, *size, scale=1.5, seed=seed + 3)
    masks = noise(1, groups, 9, *size, seed=seed + 4).sigmoid()
    expected = bias.view(1, 2, 1, 1).repeat(1, 1, *size)
    for c, tap, i, j in pixels(4, 9, *size):
        group = c // (4 // groups)
        dx, dy = offsets[0, group, tap, :, i, j].tolist()
        value = bilinear(x[0, c], j + tap % 3 - 1 + dx, i + tap // 3 - 1 + dy)
        expected[0, :, i, j] += weight[:, c, tap // 3, tap % 3] * value * masks[0, group, tap, i, j]
    torch.testing.assert_close(deformable_conv(x, offsets, masks, weight, bias), expected, atol=1e-9, rtol=0)


def test_deformable_convolution_without_deformation_is_a_convolution() -> None:
    x, weight, bias = noise(2, 4, 5, 7), noise(3, 4, 3, 3), noise(3)
    still, full = torch.zeros(2, 2, 9, 2, 5, 7).double(), torch.ones(2, 2, 9, 5, 7).double()
    torch.testing.assert_close(
        deformable_conv(x, still, full, weight, bias), F.conv2d(x, weight, bias, padding=1)
    )


def test_deformable_convolution_gradients() -> None:
    inputs = [noise(1, 2, 3, 4), noise(1, 2, 9, 2, 3, 4, scale=0.3), noise(1, 2, 9, 3, 4), noise(2, 2, 3, 3)]
    leaves = [x.requires_grad_() for x in (*inputs, noise(2))]
    assert torch.autograd.gradcheck(deformable_conv, leaves)


def test_deformable_layer_starts_as_a_convolution_at_half_strength() -> None:
    layer = DeformableConv(4, groups=2).double()
    x = noise(1, 4, 5, 6)
    assert layer.taps.bias is not None
    plain = F.conv2d(x, layer.taps.weight / 2, layer.taps.bias, padding=1)
    torch.testing.assert_close(layer(x, noise(1, 4, 5, 6, seed=1)), plain)


@given(size=sizes, pool=st.sampled_from([1, 2, 4, 8]), seed=st.integers(0, 99))
def test_correlation_gather_is_the_volume_pooled(size: tuple[int, int], pool: int, seed: int) -> None:
    """The definition, with the N x N volume built, pooled over the neighbour's axes, and used."""
    height, width = size
    reference, neighbour = noise(1, 3, *size, seed=seed), noise(1, 3, *size, seed=seed + 1)
    gathered = correlation_gather(reference, neighbour, pool)
    volume = torch.einsum("cij,ckl->ijkl", reference[0], neighbour[0]) / math.sqrt(3)
    cells = [
        (slice(y, y + pool), slice(x, x + pool))
        for y in range(0, height, pool)
        for x in range(0, width, pool)
    ]
    scores = torch.stack([volume[:, :, y, x].mean((2, 3)) for y, x in cells], -1).softmax(-1)
    means = torch.stack([neighbour[0, :, y, x].mean((1, 2)) for y, x in cells], -1)
    torch.testing.assert_close(gathered[0], torch.einsum("ijn,cn->cij", scores, means), atol=1e-9, rtol=0)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_correlation_gather_never_builds_the_volume(memory_format: torch.memory_format) -> None:
    """The fused kernel takes the tensors as they come; with any other allowed kernel this raises."""
    reference, neighbour = (x.to(memory_format=memory_format) for x in noise(2, 1, 8, 6, 4).unbind())
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert correlation_gather(reference, neighbour, 2).isfinite().all()
