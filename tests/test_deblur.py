"""The job that every front end calls: its options, its stages, and how it is stopped."""

import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import pahs
from clips import decoded, make_clip
from pahs.networks import Deblurrer, PAHSConfig
from pahs.progress import Callback, Progress
from pahs.video.writer import VideoWriter


@pytest.fixture(scope="module")
def net() -> Deblurrer:
    torch.manual_seed(1)
    return PAHSConfig(width=6, global_skip=True, shared_extractor=True).build().eval()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (lambda: pahs.DeblurOptions(look_ahead=-1), "look-ahead is -1"),
        (lambda: pahs.DeblurOptions(device="tpu"), "device 'tpu'"),
        (lambda: pahs.DeblurOptions(precision="fp8"), "precision 'fp8'"),
        (lambda: pahs.DeblurOptions(memory=0), "memory 0"),
        (lambda: pahs.DeblurOptions(start=float("nan")), "--start nan"),
        (lambda: pahs.DeblurOptions(end=float("inf")), "--end inf"),
        (lambda: pahs.EncodeOptions(codec="vc1"), "codec 'vc1'"),
        (lambda: pahs.EncodeOptions(preset="warp"), "preset 'warp'"),
        (lambda: pahs.EncodeOptions(crf=64), "crf 64"),
    ],
)
def test_options_are_checked_before_any_work(options: Callable[[], object], told: str) -> None:
    with pytest.raises(pahs.PahsError) as error:
        options()
    assert told in str(error.value) and "\n" not in str(error.value)


def test_a_folder_of_videos_is_not_one_job(tmp_path: Path, net: Deblurrer) -> None:
    for name in "ab":
        make_clip(tmp_path / f"{name}.mp4", frames=1)
    with pytest.raises(pahs.PahsError, match="holds 2 videos"):
        pahs.deblur(tmp_path, model=net)


def test_every_stage_is_reported_in_order(tmp_path: Path, net: Deblurrer) -> None:
    seen: list[Progress] = []
    source = make_clip(tmp_path / "clip.mp4", frames=30).path
    pahs.deblur(source, tmp_path / "out.mp4", model=net, advance=Callback(seen.append))
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["opening", "looking ahead", "restoring", "finishing"]
    ahead = [progress.read for progress in seen if progress.stage == "looking ahead"]
    assert ahead == list(range(1, len(ahead) + 1)) and len(ahead) >= 20
    assert (seen[-1].done, seen[-1].expected) == (30, 30)
    assert [p.done for p in seen] == sorted(p.done for p in seen)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pahs-")]


@pytest.mark.parametrize("event", [threading.Event, multiprocessing.Event])
@pytest.mark.parametrize("stage", ["opening", "looking ahead", "restoring", "finishing"])
def test_a_job_can_be_stopped_in_every_stage(
    tmp_path: Path, net: Deblurrer, stage: str, event: Callable[[], threading.Event]
) -> None:
    source, stop = make_clip(tmp_path / "clip.mp4", frames=60).path, event()

    def see(progress: Progress) -> None:
        if progress.stage == stage:
            stop.set()

    with pytest.raises(pahs.Stopped, match=r"clip\.mp4: stopped"):
        pahs.deblur(source, tmp_path / "out.mp4", model=net, advance=Callback(see), stop=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["clip.mp4"]
    assert not threads()
    assert pahs.deblur(source, tmp_path / "out.mp4", model=net).frames == 60, "the next job of this process"


def test_a_job_that_waits_for_its_encoder_is_stopped(
    tmp_path: Path, net: Deblurrer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encoder takes a second for a frame, so that all queues before it are full."""
    source, stop = make_clip(tmp_path / "clip.mp4", frames=200).path, threading.Event()
    put = VideoWriter.put

    def slow(self: VideoWriter, item: object) -> None:
        time.sleep(1)
        put(self, item)  # type: ignore[arg-type]

    monkeypatch.setattr(VideoWriter, "put", slow)
    timer = threading.Timer(2, stop.set)
    timer.start()
    with pytest.raises(pahs.Stopped):
        pahs.deblur(source, tmp_path / "out.mp4", model=net, stop=stop)
    timer.join()
    assert not threads()
    assert [p.name for p in tmp_path.iterdir()] == ["clip.mp4"]


def test_jobs_on_threads_do_not_mix(tmp_path: Path, net: Deblurrer) -> None:
    clips = [make_clip(tmp_path / f"{n}.mp4", frames=20 + n, width=64 + 16 * n).path for n in range(2)]
    options = pahs.DeblurOptions(encode=pahs.EncodeOptions(lossless=True))
    alone = [pahs.deblur(clip, tmp_path / f"alone-{clip.name}", options, net).dst for clip in clips]

    def run(clip: Path) -> None:
        pahs.deblur(clip, tmp_path / f"together-{clip.name}", options, net)

    jobs = [threading.Thread(target=run, args=(clip,)) for clip in clips]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    for clip, one in zip(clips, alone, strict=True):
        pairs = zip(decoded(one), decoded(tmp_path / f"together-{clip.name}"), strict=True)
        assert all((a.to_ndarray() == b.to_ndarray()).all() for a, b in pairs)
