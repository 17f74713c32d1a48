"""Evaluation end to end, with networks small enough to know their answers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pahs.data import layouts
from pahs.data.layouts import PairedDataset, open_dataset, read_image
from pahs.engine import plan
from pahs.errors import PahsError
from pahs.evaluate import EvaluateOptions, evaluate, markdown_table, read_json, run, write_json
from pahs.evaluation.flops import CLIP, flops_per_frame, parameters
from pahs.evaluation.metrics import PSNR_CAP, psnr, ssim
from pahs.evaluation.options import EvaluateTask
from pahs.evaluation.protocol import REPLACE_PERIOD, passes
from pahs.networks import PAHSConfig
from pahs.networks.contract import Contract, Deblurrer, Tensors
from pahs.runtime import weights

HEIGHT, WIDTH = 20, 26
LENGTHS = {"long": 7, "short": 3}


class Gain(Deblurrer):
    """Multiplies by a learned number, 1 at first; counts the frames it saw."""

    contract = Contract(family="recurrent", look_ahead=0)

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain))
        self.seen = 0

    def extract(self, frames: Tensor) -> Tensors:
        self.seen += frames.shape[1]
        return (frames * self.gain,)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        return (features[0][:, :keep],), ()

    def reconstruct(self, latents: Tensors) -> Tensor:
        return latents[0]


class Farthest(Gain):
    """Every output is the last frame that it may look at: shows which frames an output has seen."""

    contract = Contract(family="bidirectional", look_ahead=2)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        return (features[0][:, -1:].expand(-1, keep, -1, -1, -1),), ()


class Previous(Gain):
    """Every output is the frame before, the first is itself."""

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        before = state[0] if state else features[0][:, :1]
        shifted = torch.cat([before, features[0]], 1)
        return (shifted[:, :keep],), (shifted[:, keep : keep + 1],)


class Window(Gain):
    """Remembers nothing, like a network that restores each frame from a window."""

    contract = Contract(family="windowed", look_ahead=0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    random = np.random.default_rng(7)
    for name, length in LENGTHS.items():
        texture = random.integers(0, 256, (HEIGHT, WIDTH + 2 * length, 3))
        for t in range(length):
            sharp = texture[:, 2 * t : 2 * t + WIDTH]
            blurry = (sharp + (2 + t) * texture[:, 2 * t + 1 : 2 * t + 1 + WIDTH]) // (3 + t)
            for side, frame in (("blur", blurry), ("sharp", sharp)):
                folder = tmp_path / "data" / name / side
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(frame.astype(np.uint8)).save(folder / f"{t:04d}.png")
    return tmp_path / "data"


@pytest.fixture
def dataset(root: Path) -> PairedDataset:
    return open_dataset(root)


def test_network_that_does_nothing_scores_like_its_input(dataset: PairedDataset) -> None:
    result = evaluate(Gain(), dataset, name="nothing")
    assert result.complete
    for sequence, score in zip(dataset.sequences, result.sequences, strict=True):
        assert [frame.frame for frame in score.frames] == [path.name for path in sequence.sharp]
        for index, frame in enumerate(score.frames):
            pair = sequence.read_blurry(index), sequence.read_sharp(index)
            assert frame.psnr == frame.blurry_psnr == pytest.approx(psnr(*pair))
            assert frame.ssim == frame.blurry_ssim == pytest.approx(ssim(*pair))
    assert result.frames_per_second > 0


def test_a_change_of_colour_shows(dataset: PairedDataset) -> None:
    assert evaluate(Gain(), dataset).mean_over_frames.shift == (0, 0, 0)
    result = evaluate(Gain(0.5), dataset)
    for sequence, score in zip(dataset.sequences, result.sequences, strict=True):
        for index, frame in enumerate(score.frames):
            halved = sequence.read_blurry(index).mean((0, 1)) / 2
            assert frame.shift == pytest.approx(-halved, abs=0.5)
            truth = sequence.read_sharp(index).mean((0, 1)) - 2 * halved
            assert frame.true_shift == pytest.approx(truth, abs=1e-9)
    red, green, blue = result.mean_over_frames.shift
    assert f"R {red:+.2f}, G {green:+.2f}, B {blue:+.2f} levels" in markdown_table(result)


def test_flicker_is_the_error_of_the_change_between_frames(dataset: PairedDataset) -> None:
    result = evaluate(Previous(), dataset)
    for sequence, score in zip(dataset.sequences, result.sequences, strict=True):
        assert score.frames[0].flicker is None
        blurry, sharp = (
            np.stack([read(i) for i in range(len(sequence))]).astype(float)
            for read in (sequence.read_blurry, sequence.read_sharp)
        )
        output = np.concatenate([blurry[:1], blurry[:-1]])
        for clip, found in (
            (output, [f.flicker for f in score.frames[1:]]),
            (blurry, [f.blurry_flicker for f in score.frames[1:]]),
        ):
            assert found == pytest.approx(
                np.abs(np.diff(clip, axis=0) - np.diff(sharp, axis=0)).mean((1, 2, 3))
            )
    one_pass_each = evaluate(Gain(), dataset, EvaluateOptions(replace_neighbour=True))
    assert one_pass_each.mean_over_frames.flicker is None


def test_the_two_averages_differ_when_lengths_do(dataset: PairedDataset) -> None:
    result = evaluate(Gain(0.9), dataset)
    per_sequence = [[frame.psnr for frame in s.frames] for s in result.sequences]
    assert [len(frames) for frames in per_sequence] == [7, 3]
    assert result.mean_over_sequences.psnr == pytest.approx(np.mean([np.mean(x) for x in per_sequence]))
    assert result.mean_over_frames.psnr == pytest.approx(
        np.mean([x for frames in per_sequence for x in frames])
    )
    assert abs(result.mean_over_sequences.psnr - result.mean_over_frames.psnr) > 0.01
    table = markdown_table(result)
    for name, mean in (
        ("mean over sequences", result.mean_over_sequences),
        ("mean over all frames", result.mean_over_frames),
    ):
        row = next(line for line in table.splitlines() if name in line)
        assert f"{mean.psnr:.2f}" in row and f"{mean.blurry_psnr:.2f}" in row and f"{mean.ssim:.4f}" in row
    assert result.protocol in table


def test_identical_frames_leave_the_mean_finite(root: Path, tmp_path: Path) -> None:
    for t in range(3):
        source = root / "short" / "sharp" / f"{t:04d}.png"
        (root / "short" / "blur" / source.name).write_bytes(source.read_bytes())
    source = root / "long" / "sharp" / "0000.png"
    (root / "long" / "blur" / "0000.png").write_bytes(source.read_bytes())
    result = evaluate(Gain(), open_dataset(root), json_file=tmp_path / "r.json")
    long, short = result.sequences
    assert short.mean.psnr == PSNR_CAP
    assert short.mean.ssim == pytest.approx(1)
    assert long.frames[0].psnr == PSNR_CAP
    assert long.mean.psnr == pytest.approx(np.mean([PSNR_CAP, *(frame.psnr for frame in long.frames[1:])]))
    assert result.mean_over_sequences.psnr == pytest.approx((long.mean.psnr + PSNR_CAP) / 2)
    assert " 100.00 " in markdown_table(result)
    assert read_json(tmp_path / "r.json") == result


def test_second_run_takes_up_where_the_first_ended(dataset: PairedDataset, tmp_path: Path) -> None:
    file = tmp_path / "out" / "result.json"
    first = Gain(0.8)
    part = evaluate(first, replace(dataset, sequences=dataset.sequences[1:]), json_file=file)
    assert first.seen == LENGTHS["short"]
    second = Gain(0.8)
    whole = evaluate(second, dataset, json_file=file)
    assert second.seen == LENGTHS["long"]
    assert [s.name for s in whole.sequences] == ["long", "short"]
    assert whole.sequences[1] == part.sequences[0]
    third = Gain(0.8)
    assert evaluate(third, dataset, json_file=file) == whole == read_json(file)
    assert third.seen == 0
    assert [path.name for path in file.parent.iterdir()] == ["result.json"]


def test_interrupted_run_keeps_what_is_finished(dataset: PairedDataset, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    damaged = root / "short" / "sharp" / "0001.png"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PahsError, match=r"0001\.png"):
        evaluate(Gain(), dataset, json_file=file)
    left = read_json(file)
    assert [s.name for s in left.sequences] == ["long"]
    assert not left.complete
    assert "1 of 2 sequences are still to do" in markdown_table(left)
    damaged.write_bytes(whole)
    model = Gain()
    assert evaluate(model, dataset, json_file=file).complete
    assert model.seen == LENGTHS["short"]


def test_other_network_or_protocol_is_not_mixed_in(dataset: PairedDataset, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    evaluate(Gain(), dataset, json_file=file, name="first")
    before = file.read_bytes()
    with pytest.raises(PahsError, match=r"result\.json: holds another evaluation \(first"):
        evaluate(Gain(0.5), dataset, json_file=file)
    with pytest.raises(PahsError, match="holds another evaluation"):
        evaluate(Gain(), dataset, EvaluateOptions(limit=2), json_file=file)
    assert file.read_bytes() == before
    other = evaluate(Gain(0.5), dataset, json_file=file, overwrite=True)
    assert read_json(file) == other


def test_changed_frames_are_scored_again(dataset: PairedDataset, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    evaluate(Gain(), dataset, json_file=file)
    Image.fromarray(np.zeros((HEIGHT, WIDTH, 3), np.uint8)).save(root / "short" / "blur" / "0002.png")
    model = Gain()
    evaluate(model, open_dataset(root), json_file=file)
    assert model.seen == LENGTHS["short"]


def test_json_is_plain_and_names_what_belongs_to_a_number(dataset: PairedDataset, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    result = evaluate(Gain(), dataset, EvaluateOptions(every_second=True), name="net", json_file=file)
    data = json.loads(file.read_text())
    assert data["model"]["name"] == "net"
    assert data["model"]["parameters"] == 1
    assert data["model"]["precision"] == "fp32"
    assert "every second frame" in data["summary"]["protocol"]
    assert data["summary"]["mean_over_frames"]["psnr"] == result.mean_over_frames.psnr
    assert data["summary"]["mean_over_sequences"]["blurry_psnr"] == result.mean_over_sequences.blurry_psnr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "pahs-evaluation-1", "model": 3}'])
def test_other_files_are_not_overwritten(text: str, dataset: PairedDataset, tmp_path: Path) -> None:
    file = tmp_path / "notes.json"
    file.write_text(text)
    with pytest.raises(PahsError, match=r"notes\.json: not an evaluation"):
        evaluate(Gain(), dataset, json_file=file)
    assert file.read_text() == text


def test_result_that_cannot_be_written_is_named(dataset: PairedDataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = evaluate(Gain(), dataset)
    with pytest.raises(PahsError, match=r"r\.json: cannot be written"):
        write_json(result, tmp_path / "file" / "r.json")


def test_large_motion_and_limit_choose_frames(dataset: PairedDataset) -> None:
    names = [
        [frame.frame for frame in evaluate(Gain(), dataset, options).sequences[0].frames]
        for options in (
            EvaluateOptions(every_second=True),
            EvaluateOptions(limit=2),
            EvaluateOptions(every_second=True, limit=3),
        )
    ]
    assert names == [
        ["0000.png", "0002.png", "0004.png", "0006.png"],
        ["0000.png", "0001.png"],
        ["0000.png", "0002.png", "0004.png"],
    ]


@pytest.mark.parametrize("look_ahead", [0, 1, 4])
def test_outputs_see_exactly_the_future_frames_asked_for(dataset: PairedDataset, look_ahead: int) -> None:
    sequence = dataset.sequences[0]
    result = evaluate(Farthest(), dataset, EvaluateOptions(look_ahead=look_ahead))
    for t, frame in enumerate(result.sequences[0].frames):
        seen = min(t + look_ahead, len(sequence) - 1)
        expected = psnr(sequence.read_blurry(seen), sequence.read_sharp(t))
        assert frame.psnr == pytest.approx(expected)
    assert f"; exactly {look_ahead} future frames (fewer at the end)" in result.protocol


def test_the_papers_protocol_is_named(dataset: PairedDataset) -> None:
    text = evaluate(Farthest(), dataset, EvaluateOptions(look_ahead=19)).protocol
    assert "exactly 19 future frames (fewer at the end, as in the paper's main comparison)" in text


def test_future_frames_of_a_recurrent_network_are_fixed(dataset: PairedDataset) -> None:
    with pytest.raises(PahsError, match="--look-ahead: one-way is recurrent"):
        evaluate(Gain(), dataset, EvaluateOptions(look_ahead=3), name="one-way")
    assert "; 0 future frames" in evaluate(Gain(), dataset).protocol


def test_the_protocol_says_how_far_an_output_may_see(
    dataset: PairedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = evaluate(Farthest(), dataset, json_file=tmp_path / "r.json").protocol
    assert "at least 2 future frames (up to 33: one backward sweep for 32 frames)" in text
    monkeypatch.setitem(plan.MAX_CHUNK, "cpu", 3)
    scores = evaluate(Farthest(), dataset).sequences[0].frames
    for t, seen in enumerate((4, 4, 4, 6, 6, 6, 6)):
        pair = dataset.sequences[0].read_blurry(seen), dataset.sequences[0].read_sharp(t)
        assert scores[t].psnr == pytest.approx(psnr(*pair))
    with pytest.raises(PahsError, match="holds another evaluation"):
        evaluate(Farthest(), dataset, json_file=tmp_path / "r.json")


@pytest.mark.parametrize(
    ("network", "options", "most"),
    [
        (Gain(), EvaluateOptions(), 1),
        (Window(), EvaluateOptions(replace_neighbour=True), REPLACE_PERIOD - 1),
        (Gain(), EvaluateOptions(replace_neighbour=True), LENGTHS["long"]),
    ],
)
def test_a_blurry_frame_is_decoded_once_a_pass(
    dataset: PairedDataset,
    network: Gain,
    options: EvaluateOptions,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = []
    read = layouts.read_image
    monkeypatch.setattr(layouts, "read_image", lambda path: decoded.append(path) or read(path))
    evaluate(network, dataset, options)
    blurry = Counter(path for path in decoded if path.parent.name == "blur")
    assert len(blurry) == sum(LENGTHS.values()) and max(blurry.values()) == most


class Sum(Gain):
    """Every output is a weighted sum of all frames before and after it."""

    contract = Contract(family="bidirectional", look_ahead=30)

    def propagate(self, features: Tensors, state: Tensors | None, keep: int) -> tuple[Tensors, Tensors]:
        frames = features[0]
        weights = torch.linspace(0.05, 0.15, frames.shape[1], device=frames.device).view(1, -1, 1, 1, 1)
        return ((weights * frames).sum(1, keepdim=True).expand(-1, keep, -1, -1, -1),), ()


def test_a_recurrent_network_is_given_exactly_one_sharp_frame(dataset: PairedDataset) -> None:
    result = evaluate(Sum(), dataset, EvaluateOptions(replace_neighbour=True))
    for sequence, score in zip(dataset.sequences, result.sequences, strict=True):
        for t, frame in enumerate(score.frames):
            near = t - 1 if t else 1
            seen = [
                (sequence.read_sharp if i == near else sequence.read_blurry)(i) for i in range(len(sequence))
            ]
            weights = np.linspace(0.05, 0.15, len(seen))
            mixed = (np.stack(seen) / 255 * weights[:, None, None, None]).sum(0)
            output = np.round(mixed.clip(0, 1) * 255).astype(np.uint8)
            assert frame.psnr == pytest.approx(psnr(output, sequence.read_sharp(t)), abs=0.02)
    assert "one neighbour sharp (all other frames blurry)" in result.protocol


def test_replaced_neighbour_is_the_sharp_previous_frame(dataset: PairedDataset) -> None:
    result = evaluate(Previous(), dataset, EvaluateOptions(replace_neighbour=True))
    for sequence, score in zip(dataset.sequences, result.sequences, strict=True):
        assert len(score.frames) == len(sequence)
        for t in range(1, len(sequence)):
            expected = psnr(sequence.read_sharp(t - 1), sequence.read_sharp(t))
            assert score.frames[t].psnr == pytest.approx(expected)
            assert score.frames[t].blurry_psnr == pytest.approx(
                psnr(sequence.read_blurry(t), sequence.read_sharp(t))
            )
        assert score.frames[0].psnr == score.frames[0].blurry_psnr
    assert "one neighbour sharp" in result.protocol


@pytest.mark.parametrize("frames", [2, 3, 5, 6, 23])
def test_passes_score_each_frame_once_beside_one_sharp_neighbour(frames: int) -> None:
    found = passes(frames, replace_neighbour=True, family="windowed")
    assert sorted(t for one in found for t in one.scored) == list(range(frames))
    for one in found:
        for t in one.scored:
            window = range(t - REPLACE_PERIOD // 2, t + REPLACE_PERIOD // 2 + 1)
            assert one.replaced.intersection(window) == {t - 1 if t else 1}


def test_scene_cuts_are_ignored_unless_asked_for(root: Path) -> None:
    for t in range(3):
        level = np.full((HEIGHT, WIDTH, 3), 255 if t == 2 else 0, np.uint8)
        Image.fromarray(level).save(root / "short" / "blur" / f"{t:04d}.png")
    dataset = open_dataset(root / "short")
    carried, reset = (
        evaluate(Previous(), dataset, EvaluateOptions(scene_cuts=scene_cuts)) for scene_cuts in (False, True)
    )
    sharp = dataset.sequences[0].read_sharp(2)
    last = [result.sequences[0].frames[2].psnr for result in (carried, reset)]
    assert last == pytest.approx([psnr(dataset.sequences[0].read_blurry(t), sharp) for t in (1, 2)])
    assert "scene cuts" in reset.protocol and "scene cuts" not in carried.protocol


def test_single_frame_has_no_neighbour(dataset: PairedDataset) -> None:
    with pytest.raises(PahsError, match="sequence long has one frame"):
        evaluate(Gain(), dataset, EvaluateOptions(limit=1, replace_neighbour=True))
    for wrong in ({"limit": 0}, {"look_ahead": -1}):
        with pytest.raises(PahsError, match="must be"):
            EvaluateOptions(**wrong)


def test_strips_show_blurry_output_and_sharp(dataset: PairedDataset, tmp_path: Path) -> None:
    evaluate(Gain(0.0), dataset, strips=tmp_path / "strips")
    assert sorted(path.name for path in (tmp_path / "strips").iterdir()) == ["long.png", "short.png"]
    strip = read_image(tmp_path / "strips" / "long.png")
    assert strip.shape == (3 * HEIGHT, 3 * WIDTH, 3)
    sequence = dataset.sequences[0]
    for row, index in enumerate((1, 3, 5)):
        blurry, output, sharp = np.split(strip[row * HEIGHT : (row + 1) * HEIGHT], 3, axis=1)
        assert np.array_equal(blurry, sequence.read_blurry(index))
        assert np.array_equal(sharp, sequence.read_sharp(index))
        assert not output.any()


def test_strip_is_cut_where_blur_does_most_harm(tmp_path: Path) -> None:
    sharp = np.zeros((300, 600, 3), np.uint8)
    blurry = sharp.copy()
    blurry[:, 560:] = 200
    for side, frame in (("blur", blurry), ("sharp", sharp)):
        (tmp_path / side).mkdir()
        Image.fromarray(frame).save(tmp_path / side / "0.png")
    evaluate(Gain(), open_dataset(tmp_path), strips=tmp_path / "strips")
    (path,) = (tmp_path / "strips").iterdir()
    strip = read_image(path)
    assert strip.shape == (256, 3 * 256, 3)
    assert strip[:, :256].any() and not strip[:, 512:].any()


def test_training_mode_comes_back(dataset: PairedDataset) -> None:
    model = Gain().train()
    evaluate(model, dataset)
    assert model.training


def test_flops_count_convolutions_and_attention() -> None:
    class Attending(Gain):
        contract = Contract(family="recurrent", look_ahead=0, multiple_of=16)

        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3, padding=1)

        def extract(self, frames: Tensor) -> Tensors:
            y = self.convolution(frames.flatten(0, 1))
            q = y.flatten(2).transpose(1, 2)[:, None]
            z = nn.functional.scaled_dot_product_attention(q, q, q, scale=1.0)[:, 0].transpose(1, 2)
            return (z.reshape(1, CLIP, 4, *frames.shape[-2:])[:, :, :3],)

    model = Attending()
    pixels = 32 * 32
    expected = 2 * pixels * (3 * 3 * 3 * 4) + 4 * pixels * pixels * 4
    assert flops_per_frame(model, HEIGHT, WIDTH) == expected
    assert parameters(model) == 1 + 3 * 3 * 3 * 4 + 4
    assert next(model.parameters()).device.type == "cpu"


def test_command_scores_a_weights_file(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    weights.save(PAHSConfig(width=12, global_skip=True).build(), tmp_path / "tiny.safetensors")
    task = EvaluateTask(
        root, markdown=tmp_path / "r.md", strips=tmp_path / "strips", device="cpu", precision="fp32"
    )
    network, options = str(tmp_path / "tiny.safetensors"), EvaluateOptions(limit=3)
    run(task, network, options, json_file=tmp_path / "r.json", quiet=True)
    result = read_json(tmp_path / "r.json")
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "r.md").read_text() == markdown_table(result)
    assert result.model.name == "tiny.safetensors"
    assert result.model.flops_per_frame > 1e6
    assert len(list((tmp_path / "strips").iterdir())) == 2
    assert "first 3 frames of each sequence" in printed and "at least 19 future frames" in printed
