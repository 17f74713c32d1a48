"""`pahs batch` on a real Ray cluster: what is done, how often, and what becomes of workers that die."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("ray") is None:  # not imported: Ray reads the cluster's token then
    pytest.skip("needs the extra cluster: pip install '.[cluster,s3]'", allow_module_level=True)

from batch_workers import MARK, SLEEP, DyingWorker, SleepingWorker
from clips import decoded, make_clip
from pahs.cli import main
from pahs.cluster.batch import Report, run_batch
from pahs.cluster.manifest import Settings, Video
from pahs.cluster.planning import list_videos, make_settings
from pahs.cluster.pool import Worker, connected
from pahs.cluster.tasks import Task, Tasks
from pahs.cluster.work import Done, Runner
from pahs.deblur import DeblurOptions
from ray_cluster import Cluster
from split import make_film
from web_server import identity


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    identity(folder / "identity.safetensors")
    (folder / "in").mkdir()
    make_film(folder / "in" / "film.mp4", 60, size=(32, 32))
    for number in range(3):
        make_clip(folder / "in" / f"short{number}.mp4", frames=6, audio="aac")
    (folder / "in" / "broken.mp4").write_bytes(b"no video at all" * 100)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node with two workers, whose processes see the tests' own modules."""
    folder = tmp_path_factory.mktemp("ray")
    started = Cluster(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in started.environment.items():
            patch.setenv(name, value)
        try:
            started.start(cores=2, **{MARK: str(folder / "mark"), SLEEP: "0.005"})
            yield started
        finally:
            started.stop()


def settings_of(files: Path, **changes: Any) -> Settings:
    options = DeblurOptions(chunk=8, look_ahead=4, precision="fp32", device="cpu")
    return make_settings(str(files / "identity.safetensors"), options, changes.get("length", 20))


def batch(cluster: Cluster, videos: list[Video], settings: Settings, worker: type[Worker] = Worker) -> Report:
    with connected(cluster.address):
        return run_batch(videos, settings, cores=1, worker=worker)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


RESULTS = ["film-deblurred.mp4", *(f"short{number}-deblurred.mp4" for number in range(3))]


def test_a_batch_does_everything_but_what_is_broken_and_continues(
    files: Path, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["batch", str(files / "in"), "-o", str(out), "--on", cluster.address, "--cores", "1"]
    words += ["--model", str(files / "identity.safetensors"), "--segment-frames", "20", "--precision", "fp32"]
    words += ["--chunk", "8"]
    assert main(words) == 2
    told = capsys.readouterr()
    assert "broken.mp4: not a readable video file" in told.err and "1 of 5 videos" in told.err
    assert left_in(out) == ["batch.json", *RESULTS]
    assert [len(decoded(out / name)) for name in RESULTS] == [60, 6, 6, 6]
    report = json.loads((out / "batch.json").read_text())
    assert [video["state"] for video in report["videos"]] == ["failed", "done", "done", "done", "done"]
    assert report["videos"][1]["segments"] == 3 and report["frames"] == 78
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.mp4")}
    (out / RESULTS[1]).unlink()
    assert main(words) == 2
    report = json.loads((out / "batch.json").read_text())
    assert [video["state"] for video in report["videos"]] == ["failed", "exists", "done", "exists", "exists"]
    assert left_in(out) == ["batch.json", *RESULTS]
    assert sum(path.stat().st_mtime_ns != before[path] for path in before) == 1


def test_a_killed_worker_is_replaced_and_its_segment_done_once(
    files: Path, cluster: Cluster, tmp_path: Path
) -> None:
    videos = list_videos([str(files / "in" / "film.mp4")], str(tmp_path / "out"))
    report = batch(cluster, videos, settings_of(files), DyingWorker)
    assert [(x.state, x.frames, x.retries) for x in report.outcomes] == [("done", 60, 1)]
    assert left_in(tmp_path / "out") == ["film-deblurred.mp4"]
    assert len(decoded(tmp_path / "out" / "film-deblurred.mp4")) == 60


def test_two_drivers_at_once_do_no_harm(files: Path, cluster: Cluster, tmp_path: Path) -> None:
    """One of them goes through the segments by itself, from the last to the first."""
    videos = list_videos([str(files / "in" / "film.mp4")], str(tmp_path / "out"))
    settings = settings_of(files)
    errors: list[BaseException] = []

    def other() -> None:
        try:
            runner = Runner(settings)
            planned = runner.start(videos[0]).planned
            if planned is not None:
                for segment in planned.segments[::-1]:
                    runner.segment(planned, segment)
                runner.join(planned)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    report = batch(cluster, videos, settings, SleepingWorker)
    thread.join()
    assert not errors and not report.failures
    assert left_in(tmp_path / "out") == ["film-deblurred.mp4"]
    assert len(decoded(tmp_path / "out" / "film-deblurred.mp4")) == 60


def test_workers_with_another_model_get_no_work(
    files: Path, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the batch ends, although a head without cores, as docs/scale.md starts it, might still get workers."""
    import ray

    nodes, head = ray.nodes, {"NodeID": "0" * 56, "Alive": True, "Resources": {"memory": 1e9}}
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes(), head])
    model = tmp_path / "model.safetensors"
    shutil.copy(files / "identity.safetensors", model)
    options = DeblurOptions(precision="fp32", device="cpu")
    settings = make_settings(str(model), options, 0)
    shutil.copy(Path(__file__).parents[1] / "src/pahs/bundled/pahs-t.safetensors", model)
    videos = list_videos([str(files / "in" / "short0.mp4")], str(tmp_path / "out"))
    report = batch(cluster, videos, settings)
    assert "is another version" in report.outcomes[0].error and report.retired


def test_a_cluster_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], files: Path) -> None:
    words = ["batch", str(files / "in"), "-o", str(files / "none"), "--on", "127.0.0.1:1"]
    assert main(words) == 2
    assert "--on 127.0.0.1:1: no connection to Ray" in capsys.readouterr().err


def test_what_one_node_cannot_do_another_does() -> None:
    tasks = Tasks([Video(f"{number}", f"out/{number}", None) for number in range(4)])
    nodes = {"full", "good"}
    for _ in range(2):
        task = tasks.next("full")
        assert task is not None
        tasks.failed(task, "full", "the disk is full", nodes)
        again = tasks.next("good")
        assert again == task, "what failed elsewhere comes first"
        tasks.finished(again, Done(5, 1.0, "good"), "good")
    assert tasks.blamed["full"] == 2 and not tasks.failures
    task = tasks.next("good")
    assert task is not None
    tasks.failed(task, "good", "broken", nodes)
    assert tasks.next("good") != task
    assert tasks.next("full") == task
    tasks.failed(task, "full", "broken too", nodes)
    assert tasks.outcomes[task.video].error == "broken" and tasks.failures == 1 and tasks.open == 1


def test_a_file_that_kills_workers_is_given_up() -> None:
    tasks = Tasks([Video("deadly", "out/deadly", None), Video("good", "out/good", None)], retries=2)
    for count in (1, 2, 3):
        task = tasks.next("node")
        assert task == Task("start", 0), count
        tasks.died(task, "node")
    assert tasks.next("node") == Task("start", 1)
    assert tasks.outcomes[0].state == "failed" and "3 workers died" in tasks.outcomes[0].error


@pytest.fixture(scope="module")
def bucket(cluster: Cluster) -> Iterator[str]:
    """An S3 of our own, which every process of these tests knows by its environment."""
    pytest.importorskip("moto", reason="needs moto's server")
    pytest.importorskip("s3fs", reason="needs the extra s3")
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    names = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").mkdir("films")
        yield "s3://films"
        server.stop()


def test_from_s3_to_s3(files: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    import fsspec

    s3 = fsspec.filesystem("s3")
    for name in ("film.mp4", "short0.mp4"):
        s3.put_file(str(files / "in" / name), f"films/in/{name}")
    model = str(files / "identity.safetensors")
    words = ["plan", f"{bucket}/in", "-o", f"{bucket}/out", "--model", model, "--segment-frames", "20"]
    assert main([*words, "--precision", "fp32", "--chunk", "8"]) == 0
    path = f"{bucket}/out/plan.jsonl"
    assert main(["run", path, *(word for n in range(4) for word in ("--segment", str(n)))]) == 0
    assert main(["run", path, "--join"]) == 0
    results = ["films/out/film-deblurred.mp4", "films/out/plan.jsonl", "films/out/short0-deblurred.mp4"]
    s3.invalidate_cache()
    assert sorted(s3.find("films/out")) == results
    s3.get_file(results[0], str(files / "back.mp4"))
    assert len(decoded(files / "back.mp4")) == 60
    before = s3.info(results[0])["LastModified"]
    assert main(["run", path, "--segment", "1"]) == 0 and main(["run", path, "--join"]) == 0
    s3.invalidate_cache()
    assert sorted(s3.find("films/out")) == results and s3.info(results[0])["LastModified"] == before
    capsys.readouterr()
    assert main(["run", f"{bucket}/none.jsonl", "--join"]) == 2
    assert "none.jsonl: no such file" in capsys.readouterr().err


def test_of_two_writers_the_first_one_wins(bucket: str) -> None:
    from pahs.cluster import store

    with store.writing(f"{bucket}/one") as first, store.writing(f"{bucket}/one") as second:
        first.write_text("first")
        second.write_text("second")
    with store.fetched(f"{bucket}/one") as file:
        assert file.read_text() == "second", "which ended first"
    with store.writing(f"{bucket}/one", replace=True) as third:
        third.write_text("third")
    with store.fetched(f"{bucket}/one") as file:
        assert file.read_text() == "third"
    assert not any(path.name.startswith(".work") for path in scratch().glob("*"))


def scratch() -> Path:
    import tempfile

    return Path(tempfile.gettempdir()) / f"pahs-{os.getuid()}"
