"""What a cluster does to a batch: machines as network namespaces, kills at random moments, nodes and disks that fail.

PAHS_CLUSTER_HARD=1 runs it (make test-cluster-hard), as root because of the namespaces, and prints what it measured.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

if not os.environ.get("PAHS_CLUSTER_HARD"):
    pytest.skip("takes many minutes; make test-cluster-hard runs it", allow_module_level=True)

from batch_workers import SLEEP
from clips import decoded, make_clip
from ray_cluster import GATEWAY, Cluster, Node, kill, remove_namespace
from split import facts, make_film, psnr_of_frames
from web_server import identity

if TYPE_CHECKING:
    from moto.server import ThreadedMotoServer

KILLS = 10
FRAMES = 400
DRIVER = Path(__file__).with_name("batch_driver.py")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films of one scene and of eight, and what one run makes of them; PAHS_HARD_FILES names a folder that stays."""
    kept = os.environ.get("PAHS_HARD_FILES")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("files")
    if not (folder / "whole8.mp4").exists():
        folder.mkdir(exist_ok=True)
        identity(folder / "identity.safetensors")
        for scenes in (1, 8):
            film = make_film(folder / f"film{scenes}.mp4", FRAMES, scenes, (64, 48), seeds=3)
            words = [
                "deblur",
                str(film),
                "-o",
                str(folder / f"whole{scenes}.mp4"),
                *OPTIONS,
                "--backend",
                "torch",
            ]
            subprocess.run([sys.executable, "-m", "pahs", *words], check=True)
    return folder


OPTIONS = ["--model", "pahs-t", "--lossless", "--precision", "fp32", "--device", "cpu"]
SPLIT = [*OPTIONS, "--segment-frames", "50", "--cores", "1", "--retries", "10"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A head without workers and two nodes with one worker each, every one in a network namespace."""
    started = Cluster(tmp_path, spaces=True)
    try:
        started.start(cores=0)
        yield started
    finally:
        started.stop()


def start_driver(cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    """`pahs batch` on the head's machine."""
    command = ["ip", "netns", "exec", str(cluster.nodes[0].namespace), sys.executable, *words]
    return subprocess.Popen(
        [*command, "--on", cluster.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=cluster.environment,
    )


def finished(driver: subprocess.Popen[str], code: int = 0) -> str:
    told, _ = driver.communicate(timeout=1500)
    assert driver.returncode == code, told
    return told


def check(files: Path, out: Path, scenes: int) -> tuple[float, int]:
    """Complete, exactly once, no leftovers; returns the worst frame's PSNR and how many are identical."""
    result = out / f"film{scenes}-deblurred.mp4"
    assert sorted(path.name for path in out.iterdir()) == ["batch.json", result.name]
    assert facts(result) == facts(files / f"whole{scenes}.mp4")
    ratios = psnr_of_frames(result, files / f"whole{scenes}.mp4")
    assert len(ratios) == FRAMES
    return min(ratios), ratios.count(float("inf"))


def report(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((out / "batch.json").read_text())
    return found


def emptied(server: ThreadedMotoServer) -> None:
    """Every server of a process has what the ones before it were given."""
    host, port = server.get_host_and_port()
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()


def scratch_is_empty() -> None:
    from pahs.cluster import store

    store.tidy()
    folder = Path("/tmp") / f"pahs-{os.getuid()}"
    assert not folder.exists() or not list(folder.iterdir())


def test_a_film_on_two_nodes_is_that_of_one_run(files: Path, cluster: Cluster, tmp_path: Path) -> None:
    cluster.start()
    cluster.start()
    for scenes in (8, 1):
        out = tmp_path / f"out{scenes}"
        words = ["-m", "pahs", "batch", str(files / f"film{scenes}.mp4"), "-o", str(out), *SPLIT]
        finished(start_driver(cluster, *words))
        worst, identical = check(files, out, scenes)
        (video,) = report(out)["videos"]  # type: ignore[misc]
        assert video["segments"] == 8 and report(out)["workers"] == 2
        print(
            f"{scenes} scenes, 8 segments: {identical} of {FRAMES} frames identical, worst {worst:.1f} dB, "
            f"{report(out)['seconds']} s"
        )
        assert worst >= 80 and (scenes == 1 or identical == FRAMES)


def kill_some(driver: subprocess.Popen[str], nodes: list[Node], count: int, pause: float) -> int:
    """SIGKILL a worker at random moments; returns how many were killed."""
    chance, killed = random.Random(7), 0
    while killed < count and driver.poll() is None:
        time.sleep(chance.uniform(0.3, pause))
        victims = [pid for node in nodes for pid in node.workers()]
        if victims:
            kill([chance.choice(victims)])
            killed += 1
    return killed


def test_workers_killed_at_random_moments(files: Path, cluster: Cluster, tmp_path: Path) -> None:
    nodes = [cluster.start(), cluster.start()]
    out = tmp_path / "out"
    words = ["-m", "pahs", "batch", str(files / "film8.mp4"), "-o", str(out), *SPLIT]
    driver = start_driver(cluster, *words)
    killed = kill_some(driver, nodes, KILLS, 12.0)
    finished(driver)
    worst, identical = check(files, out, 8)
    scratch_is_empty()
    (video,) = report(out)["videos"]  # type: ignore[misc]
    print(
        f"{killed} workers killed, {video['retries']} units done again: {identical} of {FRAMES} frames identical, "
        f"worst {worst:.1f} dB, {report(out)['seconds']} s"
    )
    assert killed == KILLS and worst >= 80


def test_a_whole_node_is_removed(files: Path, cluster: Cluster, tmp_path: Path) -> None:
    cluster.start()
    lost = cluster.start()
    out = tmp_path / "out"
    words = ["-m", "pahs", "batch", str(files / "film8.mp4"), "-o", str(out), *SPLIT]
    driver = start_driver(cluster, *words)
    wait_for_segments(out, 2)
    remove_namespace(lost)
    finished(driver)
    worst, identical = check(files, out, 8)
    (video,) = report(out)["videos"]  # type: ignore[misc]
    print(
        f"a node removed: {video['retries']} units done again, {identical} of {FRAMES} frames identical, "
        f"worst {worst:.1f} dB, {report(out)['seconds']} s"
    )
    assert worst >= 80


def wait_for_segments(out: Path, count: int) -> list[Path]:
    deadline = time.monotonic() + 600
    while len(found := list(out.glob(".*.segments/*.packets"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_a_driver_is_killed_and_started_again(files: Path, cluster: Cluster, tmp_path: Path) -> None:
    cluster.start()
    cluster.start()
    out = tmp_path / "out"
    words = ["-m", "pahs", "batch", str(files / "film8.mp4"), "-o", str(out), *SPLIT]
    driver = start_driver(cluster, *words)
    wait_for_segments(out, 3)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    kept = {path: path.stat().st_mtime_ns for path in wait_for_segments(out, 3)}
    driver = start_driver(cluster, *words)
    again = []
    while driver.poll() is None:
        for path, time_before in kept.items():
            with suppress(FileNotFoundError):
                again += [path] if path.stat().st_mtime_ns != time_before else []
        time.sleep(0.2)
    finished(driver)
    worst, identical = check(files, out, 8)
    print(
        f"driver killed after {len(kept)} segments, {len(set(again))} of them done again: "
        f"{identical} of {FRAMES} frames identical, worst {worst:.1f} dB"
    )
    assert worst >= 80 and not again


def test_a_node_with_a_full_disk(files: Path, cluster: Cluster, tmp_path: Path) -> None:
    """Sources and results are in an object store, and one node has no room for them."""
    from moto.server import ThreadedMotoServer

    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    server = ThreadedMotoServer(GATEWAY, 0)
    server.start()
    emptied(server)
    host, port = server.get_host_and_port()
    store = s3_environment(host, port)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in store.items():
                patch.setenv(name, value)
            import fsspec

            s3 = fsspec.filesystem("s3", skip_instance_cache=True)
            s3.mkdir("films")
            for number in range(8):
                clip = make_clip(tmp_path / f"clip{number}.mp4", frames=40, width=128, height=96).path
                s3.put_file(str(clip), f"films/in/{clip.name}")
            assert clip.stat().st_size > 65536
            cluster.start(**store, TMPDIR=str(small))
            cluster.start(**store)
            words = ["-m", "pahs", "batch", "s3://films/in", "-o", "s3://films/out", "--cores", "1"]
            words += [
                "--model",
                str(files / "identity.safetensors"),
                "--precision",
                "fp32",
                "--device",
                "cpu",
            ]
            driver = subprocess_env(cluster, words, store)
            told = finished(driver)
            s3.invalidate_cache()
            found = [name for name in s3.find("films/out") if name.endswith(".mp4")]
            about = json.loads(s3.cat("films/out/batch.json"))
        assert len(found) == 8 and "gets no more work" in told
        print(f"a full disk: {len(found)} of 8 done, {sum(v['retries'] for v in about['videos'])} elsewhere")
        assert not list(small.glob("*/*"))
    finally:
        server.stop()
        cluster.stop()
        subprocess.run(["umount", str(small)], check=False)
        cluster.nodes.clear()
        cluster.spaces = False


def s3_environment(host: str, port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def subprocess_env(cluster: Cluster, words: list[str], more: dict[str, str]) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", str(cluster.nodes[0].namespace), sys.executable, *words]
    return subprocess.Popen(
        [*command, "--on", cluster.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**cluster.environment, **more},
    )


def test_two_workers_are_nearly_twice_as_fast(files: Path, cluster: Cluster, tmp_path: Path) -> None:
    """300 short videos with a network that sleeps instead of computing."""
    source = tmp_path / "in"
    source.mkdir()
    clip = make_clip(tmp_path / "clip.mp4", frames=8, width=32, height=32).path
    for number in range(300):
        shutil.copy(clip, source / f"{number:03d}.mp4")
    cluster.start(**{SLEEP: "0.1"})
    seconds = {}
    for workers in (1, 2):
        if workers == 2:
            cluster.start(**{SLEEP: "0.1"})
        out = tmp_path / f"out{workers}"
        told = finished(start_driver(cluster, str(DRIVER), str(source), str(out)))
        about = json.loads(told.strip().splitlines()[-1])
        assert len(list(out.glob("*-deblurred.mp4"))) == 300 and about["workers"] == workers
        seconds[workers] = about["seconds"]
        gap = (about["seconds"] * workers - about["busy"]) / 300 * 1000
        print(
            f"{workers} workers: {about['seconds']:.1f} s for 300 videos, scheduling {gap:.1f} ms for each, "
            f"decode, trial and encode {(about['busy'] / 300 - 0.8) * 1000:.0f} ms"
        )
    print(f"2 workers are {seconds[1] / seconds[2]:.2f} times as fast as 1")
    assert seconds[1] / seconds[2] >= 1.8


def test_on_s3_with_a_writer_killed_and_two_drivers(files: Path, tmp_path: Path) -> None:
    """Two drivers on one manifest, each with `pahs run` for every segment; a third is killed while it writes."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    emptied(server)
    store = s3_environment(*server.get_host_and_port())
    environment = {**os.environ, **store, "OMP_NUM_THREADS": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.items():
            patch.setenv(name, value)
        import fsspec

        s3 = fsspec.filesystem("s3", skip_instance_cache=True)
        s3.mkdir("films")
        s3.put_file(str(files / "film8.mp4"), "films/in/film8.mp4")
        words = ["plan", "s3://films/in", "-o", "s3://films/out", "--segment-frames", "50"]
        words += ["--model", str(files / "identity.safetensors"), "--lossless", "--precision", "fp32"]
        run = [sys.executable, "-m", "pahs"]
        subprocess.run([*run, *words, "--device", "cpu"], check=True, env=environment)
        manifest = "s3://films/out/plan.jsonl"
        chance = random.Random(3)
        for number in range(8):
            killed = subprocess.Popen([*run, "run", manifest, "--segment", str(number)], env=environment)
            time.sleep(chance.uniform(2, 9))
            killed.kill()
            killed.wait()
        s3.invalidate_cache()
        half = [name for name in s3.find("films/out") if name.endswith(".packets")]

        def drive(order: list[int]) -> None:
            segments = [word for number in order for word in ("--segment", str(number))]
            subprocess.run([*run, "run", manifest, *segments], check=True, env=environment)
            subprocess.run([*run, "run", manifest, "--join"], check=True, env=environment)

        drivers = [threading.Thread(target=drive, args=(x,)) for x in ([*range(8)], [*range(7, -1, -1)])]
        for thread in drivers:
            thread.start()
        for thread in drivers:
            thread.join()
        s3.invalidate_cache()
        assert sorted(s3.find("films/out")) == ["films/out/film8-deblurred.mp4", "films/out/plan.jsonl"]
        uploads = s3.call_s3("list_multipart_uploads", Bucket="films").get("Uploads", [])
        s3.get_file("films/out/film8-deblurred.mp4", str(tmp_path / "back.mp4"))
    server.stop()
    scratch_is_empty()
    assert len(decoded(tmp_path / "back.mp4")) == FRAMES and not uploads
    assert psnr_of_frames(tmp_path / "back.mp4", files / "film8.mp4").count(float("inf")) == FRAMES
    print(
        f"8 writers killed ({len(half)} had finished), 2 drivers: {FRAMES} frames, nothing double, nothing half"
    )


def test_an_upload_that_is_killed_half_way_is_not_seen() -> None:
    """Large files go up in parts; the next writer is not kept from writing, and writes the whole."""
    from moto.server import ThreadedMotoServer

    from pahs.cluster import store

    program = "from pahs.cluster import store\nwith store.writing('s3://films/big') as path:\n"
    program += "    path.write_bytes(b'x' * 250_000_000)\n"
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    emptied(server)
    names = s3_environment(*server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        import fsspec

        s3 = fsspec.filesystem("s3", skip_instance_cache=True)
        s3.mkdir("films")
        writer = subprocess.Popen([sys.executable, "-c", program])
        while not s3.call_s3("list_multipart_uploads", Bucket="films").get("Uploads"):
            assert writer.poll() is None, "it was done before it could be killed"
            time.sleep(0.01)
        writer.kill()
        writer.wait()
        assert not store.exists("s3://films/big") and not s3.find("films")
        with store.writing("s3://films/big") as path:
            path.write_bytes(b"y" * 1000)
        subprocess.run([sys.executable, "-c", program], check=True)
        s3.invalidate_cache()
        assert s3.cat("films/big") == b"y" * 1000, "the first whole file stays"
    server.stop()
    scratch_is_empty()
    print("an upload killed after its first parts: nothing to be seen, and the next writer wrote the whole")
