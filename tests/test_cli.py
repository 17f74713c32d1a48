"""The command line as a user meets it: files in, files out, one line when something is wrong."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import pytest
import torch

import pahs
from clips import decoded, make_clip, packets_of
from pahs.cli import app, main
from pahs.networks import PRESETS, PAHSConfig
from pahs.runtime import weights


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that visibly changes what it sees, small enough for tests."""
    path = tmp_path_factory.mktemp("net") / "net.safetensors"
    torch.manual_seed(1)
    weights.save(PAHSConfig(width=6, global_skip=True, shared_extractor=True).build(), path)
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pahs", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_video_in_video_out(tmp_path: Path, net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=9, audio="aac")
    before = clip.path.read_bytes()
    assert main(["deblur", str(clip.path), "-o", str(tmp_path / "out.mp4"), "--model", str(net)]) == 0
    assert "out.mp4  9 frames" in capsys.readouterr().out
    frames = decoded(tmp_path / "out.mp4")
    assert [f.pts * f.time_base for f in frames] == [t * clip.time_base for t in clip.pts]
    assert packets_of(tmp_path / "out.mp4", "audio") == clip.audio
    changed = frames[4].to_ndarray(format="rgb24").astype(int) - decoded(clip.path)[4].to_ndarray(
        format="rgb24"
    )
    assert abs(changed).mean() > 0.5
    assert clip.path.read_bytes() == before


def test_several_inputs_go_to_a_folder(tmp_path: Path, net: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        make_clip(tmp_path / "in" / f"{name}.mkv", frames=2)
    assert main(["deblur", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--model", str(net)]) == 0
    assert [len(decoded(p)) for p in sorted((tmp_path / "out").iterdir())] == [2, 2]


def test_one_bad_input_does_not_stop_the_others(
    tmp_path: Path, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_clip(tmp_path / "good.mp4", frames=2)
    (tmp_path / "bad.mp4").write_text("not a video")
    inputs = [str(tmp_path / "bad.mp4"), str(tmp_path / "good.mp4")]
    assert main(["deblur", *inputs, "-o", str(tmp_path / "out"), "--model", str(net)]) == 2
    error = capsys.readouterr().err
    assert "bad.mp4" in error
    assert "1 of 2 inputs" in error
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_lossless_and_codec_reach_the_encoder(tmp_path: Path, net: Path) -> None:
    clip = make_clip(tmp_path / "clip.mkv", frames=2)
    results = {}
    for name, options in {"ffv1": ["--codec", "ffv1"], "lossless": ["--lossless"], "lossy": []}.items():
        out = tmp_path / f"{name}.mkv"
        assert main(["deblur", str(clip.path), "-o", str(out), "--model", str(net), *options]) == 0
        results[name] = [frame.to_ndarray() for frame in decoded(out)]
        with av.open(str(out)) as container:
            assert container.streams.video[0].codec_context.name == ("ffv1" if name == "ffv1" else "h264")
    assert all((a == b).all() for a, b in zip(results["ffv1"], results["lossless"], strict=True))
    assert any((a != b).any() for a, b in zip(results["ffv1"], results["lossy"], strict=True))


def bad_inputs(folder: Path, name: str) -> tuple[list[str], str]:
    """Arguments that cannot work, and what the one line must say."""
    clip = folder / "clip.mp4"
    make_clip(clip, frames=4, movflags="faststart")
    match name:
        case "missing":
            return [str(folder / "none.mp4")], "none.mp4"
        case "text":
            (folder / "text.mp4").write_text("hello\n" * 100)
            return [str(folder / "text.mp4")], "text.mp4"
        case "empty":
            (folder / "empty.mp4").touch()
            return [str(folder / "empty.mp4")], "empty.mp4"
        case "tiny frames":
            make_clip(folder / "tiny.mp4", frames=2, width=8, height=8)
            return [str(folder / "tiny.mp4")], "8x8; the smallest is 16x16"
        case "output is input":
            return [str(clip), "-o", str(clip)], "clip.mp4"
        case "unwritable":
            (folder / "file").touch()
            return [str(clip), "-o", str(folder / "file" / "out.mp4")], "out.mp4"
        case "exists":
            make_clip(folder / "out.mp4", frames=1)
            return [str(clip), "-o", str(folder / "out.mp4")], "exists"
        case "model":
            return [str(clip), "--model", "pahs-xxl"], "no model named 'pahs-xxl'"
        case "look-ahead":
            return [str(clip), "--look-ahead", "-1"], "look-ahead is -1"
        case "device":
            return [str(clip), "--device", "tpu"], "device"
        case "option":
            return [str(clip), "--modle", "x"], "--modle"
    raise AssertionError(name)


@pytest.mark.parametrize(
    "name",
    [
        "missing", "text", "empty", "tiny frames", "output is input", "unwritable", "exists", "model",
        "look-ahead", "device", "option",
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, net: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, expected = bad_inputs(tmp_path, name)
    if "--model" not in arguments:
        arguments += ["--model", str(net)]
    before = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    assert main(["deblur", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert expected in error
    assert {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before, (
        "something was left behind"
    )


def test_truncated_video_gives_what_decodes_and_says_what_is_lost(tmp_path: Path, net: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=30, movflags="faststart")
    content = clip.path.read_bytes()
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(content[: int(0.7 * len(content))])
    done = run("deblur", cut, "-o", tmp_path / "out.mp4", "--model", net)
    assert done.returncode == 0, done.stderr
    frames = len(decoded(tmp_path / "out.mp4"))
    assert 5 < frames < 30
    assert f"{30 - frames} damaged or missing frames" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_in_the_middle_leaves_nothing(tmp_path: Path, net: Path, stop: signal.Signals) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=600, width=160, height=96)
    before = clip.path.read_bytes()
    command = [sys.executable, "-m", "pahs", "deblur", str(clip.path), "-o", "out.mp4", "--model", str(net)]
    # A hangup that the tests' own shell ignores, by nohup, would be ignored by the job as well.
    heard = lambda: signal.signal(stop, signal.SIG_DFL)  # noqa: E731
    job = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    deadline = time.monotonic() + 60
    while not any(".partial" in p.name for p in tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    job.send_signal(stop)
    _, error = job.communicate(timeout=60)
    assert job.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    assert [p.name for p in tmp_path.iterdir()] == ["clip.mp4"]
    assert clip.path.read_bytes() == before


def peak_memory(clip: Path, out: Path, net: Path) -> int:
    """Peak resident memory of `pahs deblur` in KiB, from a process that does nothing else."""
    probe = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    command = [sys.executable, "-m", "pahs", "deblur", str(clip), "-o", str(out), "--model", str(net)]
    done = subprocess.run([sys.executable, "-c", probe, *command], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_video(tmp_path: Path, net: Path) -> None:
    peaks = {}
    for frames in (60, 600):
        clip = make_clip(tmp_path / f"{frames}.mp4", frames=frames, width=320, height=180)
        peaks[frames] = peak_memory(clip.path, tmp_path / f"{frames}-out.mp4", net)
        assert len(decoded(tmp_path / f"{frames}-out.mp4")) == frames
    assert peaks[600] < 1.1 * peaks[60], peaks


def test_a_full_disk_is_one_line(tmp_path: Path, net: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=30, width=160, height=96)
    command = [sys.executable, "-m", "pahs", "deblur", str(clip.path), "-o", "out.mkv", "--model", str(net)]

    def limit() -> None:
        # A write beyond the limit fails as on a full disk, without the signal that would kill the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("COVERAGE_PROCESS_START", None)
    environment.pop("COV_CORE_DATAFILE", None)
    environment.pop("COVERAGE_PROCESS_CONFIG", None)
    done = subprocess.run(
        [*command, "--lossless"],
        cwd=tmp_path, capture_output=True, text=True, preexec_fn=limit, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "out.mkv" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["clip.mp4"]


def test_models_lists_all_and_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    listed = {m["name"]: m for m in json.loads(capsys.readouterr().out)}
    assert set(listed) == set(PRESETS)
    assert listed["pahs"]["parameters"] == pytest.approx(20.25e6, rel=0.01)
    assert listed["pahs"]["delay"] == 19
    assert listed["pahs"]["weights"].endswith("pahs.safetensors") and listed["pahs-paper"]["weights"] is None
    assert Path(listed["pahs-t"]["weights"]).is_file()
    assert main(["models"]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in PRESETS)


def test_random_weights_are_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=1, width=16, height=16)
    out = str(tmp_path / "out.mp4")
    assert main(["deblur", str(clip.path), "-o", out, "-m", "pahs-s-paper", "--random-weights"]) == 0
    assert "has learnt nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (
            "",
            "deblur inspect demo models synthesize train curves evaluate bench weights --version --install-completion",
        ),
        ("inspect", "--output --model --start --end --preview --codec --no-measure --json"),
        ("deblur", "--output --start --end --preview --strength --model --memory --preset --lossless"),
        ("deblur", "--compare --recursive --skip-existing --images --fps"),
        ("deblur", "--look-ahead --no-scene-cuts --overwrite --device --precision --codec"),
        ("demo", "--output --model --frames --device"),
        ("models", "--json"),
        ("synthesize", "--output --count --frames --size --rate --test-share --seed --overwrite"),
        ("train", "RECIPE --set --output --resume"),
        ("curves", "RUN --output"),
        ("evaluate", "--data --model --layout --split --json --markdown --strips --look-ahead --limit"),
        ("bench", "--zoo --reference --scaling --training-step --set --steps --model --size --clip --json"),
        ("weights average", "FILE --output --weights --half --overwrite"),
    ],
)
def test_help_names_what_there_is(command: str, names: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: pahs {command}".rstrip())
    assert [name for name in names.split() if name not in text] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands_and_options(shell: str) -> None:
    script = app.generate_completion(shell=shell)  # type: ignore[arg-type]
    assert all(word in script for word in ("deblur", "evaluate", "look-ahead", "random-weights"))


def test_python_api(tmp_path: Path, net: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=3)
    report = pahs.deblur(clip.path, model=net)
    assert report.dst == tmp_path / "clip-deblurred.mp4"
    assert len(decoded(report.dst)) == report.frames == 3
    model = pahs.load(net, device="cpu")
    frames = [f.to_ndarray(format="rgb24") for f in decoded(clip.path)]
    assert [x.shape for x in pahs.stream(model, frames)] == [f.shape for f in frames]
    again = pahs.deblur(clip.path, tmp_path / "again.mp4", model=model)
    assert again.dst.read_bytes()[-1000:] == report.dst.read_bytes()[-1000:]
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = pahs.nothing_like_this


def test_importing_pahs_is_light() -> None:
    script = "import sys, pahs; print([m for m in ('torch', 'av', 'numpy', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_demo_shows_a_gain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration with the weights in the package: everything is written, and the clip gets sharper."""
    assert main(["demo", "-o", str(tmp_path / "demo"), "--frames", "6"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert float(lines["gain"].split()[0]) > 0.5
    names = {"blurry.mp4", "deblurred.mp4", "comparison.png", "comparison.mp4"}
    assert {p.name for p in (tmp_path / "demo").iterdir()} == names
    assert len(decoded(tmp_path / "demo" / "comparison.mp4")) == 6


def test_synthesize_then_evaluate(tmp_path: Path, net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip = make_clip(tmp_path / "clip.mp4", frames=1, width=128, height=96)
    photos = tmp_path / "photos"
    photos.mkdir()
    decoded(clip.path)[0].to_image().save(photos / "one.png")
    decoded(clip.path)[0].to_image().save(photos / "two.png")
    data = tmp_path / "data"
    options = [
        "--count",
        "2",
        "--frames",
        "3",
        "--size",
        "48",
        "32",
        "--test-share",
        "0.5",
        "--device",
        "cpu",
    ]
    assert main(["synthesize", str(photos), "-o", str(data), *options]) == 0
    assert "2 sequences written" in capsys.readouterr().out
    scores = tmp_path / "scores.json"
    arguments = [
        "evaluate",
        "--model",
        str(net),
        "--data",
        str(data),
        "--json",
        str(scores),
        "--device",
        "cpu",
    ]
    assert main(arguments) == 0
    assert "PSNR" in capsys.readouterr().out
    assert scores.is_file()
    shutil.rmtree(data)
    assert main(arguments) == 2


def test_a_memory_limit_on_a_cpu_gives_the_same_frames(tmp_path: Path, net: Path) -> None:
    """In a process of its own: a limit that bands and the disk make enough, and one that nothing does."""
    clip = make_clip(tmp_path / "clip.mp4", frames=2, width=1280, height=720)
    lossless = ["--lossless", "--model", net]
    assert run("deblur", clip.path, "-o", tmp_path / "free.mkv", *lossless).returncode == 0
    done = run("deblur", clip.path, "-o", tmp_path / "tight.mkv", *lossless, "--memory", 0.6)
    assert done.returncode == 0, done.stderr
    for a, b in zip(decoded(tmp_path / "free.mkv"), decoded(tmp_path / "tight.mkv"), strict=True):
        difference = a.to_ndarray().astype(int) - b.to_ndarray()
        assert abs(difference).max() <= 1 and (difference != 0).mean() < 1e-4
    done = run("deblur", clip.path, "-o", tmp_path / "none.mkv", *lossless, "--memory", 0.3)
    assert done.returncode == 2 and "memory" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "none.mkv").exists()
