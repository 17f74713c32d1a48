"""What must not get lost: workers and servers killed at random moments, many clients at once, huge uploads.

A short version of each runs with all tests; PAHS_WEB_HARD=1 runs the full one and prints what it measured.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from clips import decoded, make_clip
from web_server import Server, identity, serving, start

HARD = bool(os.environ.get("PAHS_WEB_HARD"))
KILLS = 30 if HARD else 3
CLIENTS, JOBS = (20, 200) if HARD else (5, 15)
UPLOAD = 2 * 2**30 if HARD else 200 * 2**20


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    identity(folder / "identity.safetensors")
    make_clip(folder / "clip.mp4", frames=6)
    make_clip(folder / "long.mp4", frames=160)
    return folder


def finished_once(server: Server, ids: list[str], frames: int) -> None:
    """Every job is done, was published once, and its files are whole and alone."""
    assert {job["id"]: job["state"] for job in server.jobs()} == dict.fromkeys(ids, "done")
    with sqlite3.connect(server.folder / "queue.sqlite") as queue:
        runs = [row[0] for row in queue.execute("SELECT job FROM runs")]
    assert sorted(runs) == sorted(ids)
    for id in ids:
        folder = server.folder / "files" / id
        assert len(list(folder.iterdir())) == 3, sorted(path.name for path in folder.iterdir())
        (result,) = folder.glob("*/result.mp4")
        assert len(decoded(result)) == frames and len(decoded(result.with_name("preview.mp4"))) == frames


def test_killed_at_random_moments_every_job_is_done_once(files: Path, tmp_path: Path) -> None:
    chance = random.Random(17)
    server = start(tmp_path, model=files / "identity.safetensors")
    ids = []
    killed = {"server": 0, "worker": 0, "look": 0}
    for _ in range(KILLS):
        with suppress(OSError):  # the answer may be lost with the server; what was accepted counts
            ids.append(server.put(files / "long.mp4")["id"])
        time.sleep(chance.uniform(0.2, 4.0))
        victim = chance.choice(["server", "worker", "worker", "look"])
        if victim == "server":
            server.kill()
            assert server.process.stdout is not None
            server.process.stdout.close()
            server = start(tmp_path, model=files / "identity.safetensors", port=server.port)
            killed[victim] += 1
            continue
        for process in server.children(f"pahs.web.{victim}"):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                killed[victim] += 1
    try:
        for id in ids:
            server.wait(id, lambda job: job["state"] in ("done", "failed"), seconds=240)
        finished_once(server, ids, 160)
    finally:
        server.stop()
        assert server.process.stdout is not None
        server.process.stdout.close()
    print(f"killed {killed}: {len(ids)} jobs done, each once")


def test_an_upload_survives_the_server(files: Path, tmp_path: Path) -> None:
    data = (files / "clip.mp4").read_bytes()
    server = start(tmp_path, model=files / "identity.safetensors")
    wanted = {"name": "clip.mp4", "size": len(data), "options": {"model": "identity"}}
    job = server.ask("POST", "/api/jobs", wanted)[1]
    half = f"bytes 0-{len(data) // 2 - 1}/{len(data)}"
    source = f"/api/jobs/{job['id']}/source"
    assert server.ask("PUT", source, data[: len(data) // 2], {"Content-Range": half})[0] == 202
    (tmp_path / "files" / "0123456789abcdef").mkdir()
    (tmp_path / "files" / job["id"] / ".left").mkdir()
    server.kill()
    assert server.process.stdout is not None
    server.process.stdout.close()
    with serving(tmp_path, model=files / "identity.safetensors") as again:
        assert again.job(job["id"])["received"] == len(data) // 2
        assert [path.name for path in (tmp_path / "files").iterdir()] == [job["id"]], "leftovers are swept"
        assert [path.name for path in (tmp_path / "files" / job["id"]).iterdir()] == ["upload.part"]
        rest = f"bytes {len(data) // 2}-{len(data) - 1}/{len(data)}"
        assert again.ask("PUT", source, data[len(data) // 2 :], {"Content-Range": rest})[0] == 200
        again.wait(job["id"])
        assert again.ask("GET", source)[1] == data


def test_many_clients_at_once(files: Path, tmp_path: Path) -> None:
    with serving(tmp_path, model=files / "identity.safetensors") as server:
        ids: list[str] = []
        began = time.monotonic()

        def client() -> None:
            for _ in range(JOBS // CLIENTS):
                ids.append(server.put(files / "clip.mp4")["id"])

        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        accepted, slowest = time.monotonic() - began, 0.0
        assert len(set(ids)) == JOBS
        while any(job["state"] != "done" for job in server.jobs()):
            asked = time.monotonic()
            assert server.ask("GET", "/api/jobs?state=running")[0] == 200
            slowest = max(slowest, time.monotonic() - asked)
            assert time.monotonic() - began < 600
            time.sleep(0.2)
        finished_once(server, ids, 6)
        seconds = time.monotonic() - began
    print(
        f"{JOBS} jobs of {CLIENTS} clients: accepted in {accepted:.1f} s, done in {seconds:.1f} s, ", end=""
    )
    print(f"slowest answer meanwhile {slowest * 1000:.0f} ms")


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_memory_does_not_grow_with_an_upload(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.ask("GET", "/api/jobs")[0] == 200
        block, sent, most = b"\0" * 2**20, 0, 0
        before, began = resident(server.process.pid), time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port)) as sender:
            head = f"PUT /api/jobs?name=a.mp4&hold=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {UPLOAD}\r\n\r\n"
            sender.sendall(head.encode())
            while sent < UPLOAD:
                sender.sendall(block)
                sent += len(block)
                if sent % (32 * 2**20) == 0:
                    most = max(most, resident(server.process.pid))
            assert b" 201 " in sender.recv(100)
        seconds = time.monotonic() - began
        most = max(most, resident(server.process.pid))
        (job,) = server.jobs()
        assert job["size"] == UPLOAD
        assert most - before < 50e6
    print(f"{UPLOAD / 2**30:.2f} GiB in {seconds:.1f} s: memory +{(most - before) / 1e6:.1f} MB")


@pytest.mark.skipif(not HARD, reason="takes minutes: make test-web-hard")
def test_a_worker_that_hangs_is_replaced(files: Path, tmp_path: Path) -> None:
    with serving(tmp_path, model=files / "identity.safetensors") as server:
        job = server.put(files / "long.mp4", model="pahs-t")
        server.wait(job["id"], lambda job: job["stage"] == "restoring")
        (worker,) = server.children()
        os.kill(worker, signal.SIGSTOP)
        server.wait(job["id"], seconds=120)
        finished_once(server, [job["id"]], 160)
        assert worker not in server.children()


@pytest.mark.skipif(not HARD, reason="takes minutes: make test-web-hard")
def test_the_page_stays_quick_with_a_thousand_results(tmp_path: Path) -> None:
    from browser import browser
    from pahs.web.jobs import JobOptions, Preview
    from pahs.web.queue import Queue

    queue = Queue(tmp_path / "queue.sqlite")
    for number in range(1000):
        job = queue.add(f"clip-{number}.mp4", JobOptions(), 1000, held=False)
        assert job is not None
        queue.uploaded(job.id, 1000)
        queue.describe(
            job.id,
            {"frames": 3, "width": 64, "height": 48, "seconds": 1, "rate": 3, "codec": "h264", "depth": 8},
        )
        claimed = queue.claim("w")
        assert claimed is not None
        preview = Preview("a/preview.mp4", "whole", 3, 3.0, 64, 48, 64)
        queue.finish(claimed, "a/result.mp4", preview, 1000, 3, 1.0, [])
    queue.close()
    with serving(tmp_path) as server, browser() as started:
        page = started.new_page(viewport={"width": 1280, "height": 900})
        began = time.monotonic()
        page.goto(server.address)
        page.locator("a.row").nth(39).wait_for()
        shown = time.monotonic() - began
        began = time.monotonic()
        page.locator("a.row").nth(20).click()
        page.locator("a.row[aria-current]").nth(0).wait_for()
        page.get_by_role("button", name="Show 200 more").click()
        page.locator("a.row").nth(239).wait_for()
        clicked = time.monotonic() - began
    print(f"1000 results: list after {shown:.2f} s, a choice and 200 more rows after {clicked:.2f} s")
    assert shown < 5 and clicked < 5


def test_two_workers_share_the_queue(files: Path, tmp_path: Path) -> None:
    options = ("--device", "cpu", "--device", "cpu")
    with serving(tmp_path, *options, model=files / "identity.safetensors") as server:
        ids = [server.put(files / "long.mp4")["id"] for _ in range(4)]
        assert len(server.children()) == 2
        for id in ids:
            server.wait(id)
        finished_once(server, ids, 160)
