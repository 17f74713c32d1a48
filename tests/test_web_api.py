"""The HTTP API of a real server, with real workers and real videos."""

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest

from clips import decoded, make_clip
from pahs.cli import main
from web_server import Server, identity, serving


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    identity(folder / "identity.safetensors")
    make_clip(folder / "clip.mp4", frames=12, audio="aac")
    make_clip(folder / "long.mp4", frames=250)
    with av.open(str(folder / "large.mp4"), "w") as large:
        stream = large.add_stream("libx264", 25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = 5760, 3240, "yuv420p"
        picture = av.VideoFrame(5760, 3240, "yuv420p")
        for plane in picture.planes:  # whatever lay in that memory would make a large file
            plane.update(bytes(plane.buffer_size))
        for _ in range(4):
            large.mux(stream.encode(picture))
        large.mux(stream.encode())
    (folder / "letter.mp4").write_text("this is a letter " * 100)
    (folder / "cut.mp4").write_bytes((folder / "long.mp4").read_bytes()[:5000])
    return folder


@pytest.fixture(scope="module")
def server(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    with serving(
        folder,
        *("--max-gib", "0.01", "--max-minutes", "1", "--memory", "0.2"),
        model=files / "identity.safetensors",
    ) as started:
        yield started


def stored(server: Server) -> list[str]:
    return sorted(path.name for path in (server.folder / "files").iterdir())


def test_a_video_goes_in_and_a_video_comes_out(server: Server, files: Path, tmp_path: Path) -> None:
    job = server.put(files / "clip.mp4", codec="h264")
    assert (
        job["state"] in ("queued", "running", "done") and job["size"] == (files / "clip.mp4").stat().st_size
    )
    job = server.wait(job["id"])
    assert job["progress"] == 1 and job["error"] is None and job["frames"]["done"] == 12
    assert (
        job["facts"] | {"width": 64, "height": 48, "frames": 12, "sound": True, "codec": "h264"}
        == job["facts"]
    )
    status, result, headers = server.ask("GET", job["result"]["url"])
    assert status == 200 and headers["content-type"] == "video/mp4"
    assert 'filename="clip-deblurred.mp4"' in headers["content-disposition"]
    assert headers["content-disposition"].startswith("attachment")
    (tmp_path / "result.mp4").write_bytes(result)
    assert len(decoded(tmp_path / "result.mp4")) == 12
    assert server.ask("GET", f"/api/jobs/{job['id']}/source")[1] == (files / "clip.mp4").read_bytes()
    status, part, headers = server.ask("GET", job["preview"]["url"], headers={"Range": "bytes=4-11"})
    assert status == 206 and part[:4] == b"ftyp" and headers["content-range"].startswith("bytes 4-11/")
    status, picture, headers = server.ask("GET", job["thumbnail"])
    assert picture[:2] == b"\xff\xd8" and headers["content-type"] == "image/jpeg"
    assert server.ask("DELETE", f"/api/jobs/{job['id']}")[0] == 204
    assert server.ask("GET", f"/api/jobs/{job['id']}")[0] == 404 and job["id"] not in stored(server)


def test_a_part_at_half_strength_with_a_first_look(server: Server, files: Path) -> None:
    job = server.put(files / "long.mp4", start="1", end="8.0", strength="0.5")
    first = server.wait(job["id"], lambda job: job["preview"])
    job = server.wait(job["id"])
    assert job["frames"]["done"] == 175 and job["preview"]["frames"] == 175 and job["preview"]["start"] == 1
    assert job["options"] == {"model": "identity", "codec": "auto", "strength": 0.5, "start": 1, "end": 8}
    if first["state"] == "running":
        assert first["preview"]["kind"] == "first" and first["preview"]["frames"] <= 31
    assert len(list((server.folder / "files" / job["id"]).iterdir())) == 3, "source, thumbnail, result"


@pytest.mark.parametrize(("codec", "ending"), [("hevc", ".mp4"), ("prores", ".mov"), ("ffv1", ".mkv")])
def test_every_codec_has_a_result_and_a_preview(server: Server, files: Path, codec: str, ending: str) -> None:
    job = server.wait(server.put(files / "clip.mp4", codec=codec)["id"])
    assert job["result"]["name"] == f"clip-deblurred{ending}" and job["preview"]["frames"] == 12
    status, data, headers = server.ask("GET", job["result"]["url"])
    assert (
        status == 200 and len(data) == job["result"]["size"] and headers["content-type"].startswith("video/")
    )


def test_a_held_job_waits_for_its_user(server: Server, files: Path) -> None:
    job = server.put(files / "clip.mp4", hold="1")
    job = server.wait(job["id"], lambda job: job["facts"])
    time.sleep(0.4)
    assert server.job(job["id"])["state"] == "queued" and server.job(job["id"])["held"]
    status, changed, _ = server.ask("PATCH", f"/api/jobs/{job['id']}", {"options": {"strength": 0.25}})
    assert (
        status == 200 and changed["options"]["strength"] == 0.25 and changed["options"]["model"] == "identity"
    )
    status, _, _ = server.ask("POST", f"/api/jobs/{job['id']}/start", {"options": {"end": 0.2}})
    done = server.wait(job["id"])
    assert status == 200 and done["frames"]["done"] == 5 and done["options"]["strength"] == 0.25
    status, error, _ = server.ask("POST", f"/api/jobs/{job['id']}/pause")
    assert status == 409 and "is done" in error["error"]


def test_pause_cancel_retry(server: Server, files: Path) -> None:
    job = server.put(files / "long.mp4", model="pahs-t")
    server.wait(job["id"], lambda job: job["stage"] == "restoring")
    assert server.ask("POST", f"/api/jobs/{job['id']}/pause")[0] == 200
    before, after = {}, server.job(job["id"])
    for _ in range(10):  # the frame that is being restored is finished first
        time.sleep(1.2)
        before, after = after, server.job(job["id"])
        if after["frames"]["done"] == before["frames"]["done"]:
            break
    assert after["state"] == "running" and after["held"]
    assert after["frames"]["done"] == before["frames"]["done"] < 250
    assert server.ask("DELETE", f"/api/jobs/{job['id']}")[0] == 409
    assert server.ask("POST", f"/api/jobs/{job['id']}/cancel")[0] == 200
    ended = server.wait(job["id"], "cancelled", 20)
    assert ended["result"] is None and not list((server.folder / "files" / job["id"]).glob(".*"))
    assert server.ask("POST", f"/api/jobs/{job['id']}/retry", {"options": {"end": 0.4}})[0] == 200
    assert server.wait(job["id"])["frames"]["done"] == 10


def test_what_stays_of_a_file_is_said_before_it_runs(server: Server, files: Path) -> None:
    job = server.wait(server.put(files / "clip.mp4", hold="1")["id"], lambda job: job["facts"])
    facts = job["facts"]
    assert any("audio" in line for line in facts["kept"]) and facts["changed"] and not facts["lost"]
    assert facts["output_bytes"] > 1000
    assert server.ask("DELETE", f"/api/jobs/{job['id']}")[0] == 204


def test_a_file_that_kills_whoever_opens_it_is_given_up(server: Server, files: Path) -> None:
    """As if two processes had been ended while they looked into it."""
    status, job, _ = server.ask("POST", "/api/jobs", {"name": "bomb.mp4", "size": 5})
    with sqlite3.connect(server.folder / "queue.sqlite") as queue:
        queue.execute("UPDATE jobs SET looks = 2 WHERE id = ?", (job["id"],))
    assert status == 201 and server.ask("PUT", f"/api/jobs/{job['id']}/source", b"12345")[0] == 200
    assert "bomb.mp4: opening it took too long" in server.wait(job["id"], "failed")["error"]


@pytest.mark.parametrize(("name", "told"), [("letter.mp4", "letter.mp4: "), ("cut.mp4", "cut.mp4: ")])
def test_what_is_no_video_fails_with_one_line_that_names_it(
    server: Server, files: Path, name: str, told: str
) -> None:
    job = server.wait(server.put(files / name)["id"], "failed")
    assert (
        job["error"].startswith(told) and "\n" not in job["error"] and str(server.folder) not in job["error"]
    )
    assert server.ask("GET", f"/api/jobs/{job['id']}/result")[0] == 404


def test_an_upload_goes_on_where_it_broke_off(server: Server, files: Path) -> None:
    data = (files / "clip.mp4").read_bytes()
    status, job, headers = server.ask(
        "POST", "/api/jobs", {"name": "clip.mp4", "size": len(data), "options": {"model": "identity"}}
    )
    assert status == 201 and job["state"] == "uploading" and headers["location"] == f"/api/jobs/{job['id']}"
    source, half = f"/api/jobs/{job['id']}/source", len(data) // 2
    broken = socket.create_connection(("127.0.0.1", server.port))
    broken.sendall(
        f"PUT {source} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    )
    broken.sendall(data[:half])
    time.sleep(0.2)
    broken.close()
    received = 0
    for _ in range(50):
        received = server.job(job["id"])["received"]
        if received:
            break
        time.sleep(0.05)
    wrong = f"bytes {received + 1}-{len(data) - 1}/{len(data)}"
    status, answer, _ = server.ask("PUT", source, data[received + 1 :], {"Content-Range": wrong})
    assert status == 409 and answer["received"] == received
    right = f"bytes {received}-{half + 9}/{len(data)}"
    assert server.ask("PUT", source, data[received : half + 10], {"Content-Range": right})[0] == 202
    rest = f"bytes {half + 10}-{len(data) - 1}/{len(data)}"
    status, job, _ = server.ask("PUT", source, data[half + 10 :], {"Content-Range": rest})
    assert status == 200 and job["state"] != "uploading"
    server.wait(job["id"])
    assert server.ask("GET", source)[1] == data
    assert server.ask("PUT", source, data)[0] == 409


def test_of_a_put_that_breaks_off_nothing_stays(server: Server) -> None:
    before = stored(server), len(server.jobs())
    with socket.create_connection(("127.0.0.1", server.port)) as broken:
        broken.sendall(
            b"PUT /api/jobs?name=a.mp4 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
        )
        broken.sendall(b"x" * 100_000)
        time.sleep(0.3)
        assert len(stored(server)) == len(before[0]) + 1
    deadline = time.monotonic() + 5
    while (stored(server), len(server.jobs())) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (stored(server), len(server.jobs())) == before


def test_a_job_that_is_deleted_while_it_uploads_is_gone(server: Server) -> None:
    job = server.ask("POST", "/api/jobs", {"name": "a.mp4", "size": 1000})[1]
    with socket.create_connection(("127.0.0.1", server.port)) as sender:
        sender.sendall(
            f"PUT /api/jobs/{job['id']}/source HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: 1000\r\n\r\n{'x' * 500}".encode()
        )
        part = server.folder / "files" / job["id"] / "upload.part"
        deadline = time.monotonic() + 10
        while not part.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.ask("DELETE", f"/api/jobs/{job['id']}")[0] == 204
        sender.sendall(b"x" * 500)
        assert b" 404 " in sender.recv(4096).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--max-gib", "inf"),
        ("--max-gib", "nan"),
        ("--max-minutes", "inf"),
        ("--max-jobs", "0"),
        ("--keep-free", "nan"),
        ("--keep-free", "-1"),
        ("--memory", "inf"),
    ],
)
def test_limits_that_are_none_are_refused_in_one_line(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--folder", str(tmp_path), "--no-browser", option, value]) == 2
    assert f"{option} {value}: give " in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lock").mkdir()
    assert main(["serve", "--folder", str(tmp_path), "--no-browser"]) == 2
    assert f"--folder {tmp_path}: cannot be written (Is a directory)" in capsys.readouterr().err


def test_a_file_over_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    before, start = stored(server), time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port)) as sender:
        sender.sendall(
            b"PUT /api/jobs?name=a.mp4 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        )
        answer = sender.recv(4096)
        assert time.monotonic() - start < 1
        sender.sendall(b"x" * 1_000_000)  # nobody resets the connection meanwhile
        answer += sender.recv(4096)
    assert b" 413 " in answer and b"0.0931 GiB; this server accepts 0.01 GiB" in answer
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    chunks = (b"x" * 65536 for _ in range(400))  # its length is not said
    connection.request("PUT", "/api/jobs?name=a.mp4", chunks, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    time.sleep(0.3)
    assert stored(server) == before


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("name=../../evil.mp4", 422),
        ("name=..%2Fevil.mp4", 422),
        ("name=a%00.mp4", 422),
        ("name=" + "x" * 300 + ".mp4", 422),
        ("name=a%E2%80%AEgpj.mp4", 422),
        ("name=a.exe", 415),
        ("name=a", 415),
        ("", 422),
        ("name=a.mp4&model=/etc/passwd", 422),
        ("name=a.mp4&codec=av9", 422),
        ("name=a.mp4&strength=2", 422),
        ("name=a.mp4&strength=nan", 422),
        ("name=a.mp4&start=3&end=2", 422),
        ("name=a.mp4&colour=red", 422),
    ],
)
def test_bad_requests_are_refused_in_words_and_leave_nothing(server: Server, query: str, status: int) -> None:
    before = stored(server), sorted(path.name for path in server.folder.iterdir())
    answer, body, headers = server.ask("PUT", f"/api/jobs?{query}", b"x" * 1000)
    assert answer == status and body["error"] and headers["x-content-type-options"] == "nosniff"
    assert (stored(server), sorted(path.name for path in server.folder.iterdir())) == before


@pytest.mark.parametrize(
    ("method", "path", "body", "told"),
    [
        ("POST", "", {"name": "a.mp4", "size": 10, "model": "identity", "codec": "ffv1"}, "'model', 'codec'"),
        ("PATCH", "/ID", {"codec": "prores"}, "'codec': "),
        ("POST", "/ID/start", {"strength": 0.5}, "'strength': "),
        ("POST", "/ID/pause", {"options": {}}, "'options': "),
        ("POST", "/ID/move", {"after": None}, "'after': "),
    ],
)
def test_what_a_request_does_not_know_is_named(
    server: Server, method: str, path: str, body: dict[str, Any], told: str
) -> None:
    job = server.ask("POST", "/api/jobs", {"name": "a.mp4", "size": 10})[1]
    before = stored(server)
    status, answer, _ = server.ask(method, f"/api/jobs{path}".replace("ID", job["id"]), body)
    assert status == 422 and told in answer["error"] and "it takes " in answer["error"]
    assert server.job(job["id"]) == job and stored(server) == before
    assert server.ask("DELETE", f"/api/jobs/{job['id']}")[0] == 204


def test_a_running_job_takes_no_other_options(server: Server, files: Path) -> None:
    job = server.put(files / "long.mp4", model="pahs-t")
    server.wait(job["id"], lambda job: job["state"] == "running")
    assert server.ask("POST", f"/api/jobs/{job['id']}/pause")[0] == 200
    other = {"options": {"strength": 0.25}}
    for method, path in (("POST", "/start"), ("PATCH", "")):
        status, answer, _ = server.ask(method, f"/api/jobs/{job['id']}{path}", other)
        assert status == 409 and "the job is running" in answer["error"]
    assert server.job(job["id"])["held"] and server.job(job["id"])["options"]["strength"] == 1
    assert server.ask("POST", f"/api/jobs/{job['id']}/cancel")[0] == 200
    server.wait(job["id"], "cancelled", 20)
    assert server.ask("POST", f"/api/jobs/{job['id']}/start", other)[0] == 409
    assert server.job(job["id"])["options"]["strength"] == 1, "what is refused changes nothing"


def test_paths_in_addresses_lead_nowhere(server: Server) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/api/jobs/..%2f..%2fqueue.sqlite/source"):
        assert server.ask("GET", path)[0] in (404, 405), path
    assert server.ask("POST", "/api/jobs/x/cancel")[0] == 404
    assert server.ask("GET", "/nothing")[1]["error"] == "/nothing: there is nothing here"
    assert server.ask("POST", "/api/jobs", b"{", {"Content-Type": "application/json"})[0] == 400
    assert server.ask("POST", "/api/jobs", b"[" * 60_000, {"Content-Type": "application/json"})[0] == 400
    assert server.ask("POST", "/api/jobs", b"{}", {"Content-Type": "text/plain"})[0] == 415
    assert server.ask("POST", "/api/jobs", {"name": "a.mp4", "size": "many"})[0] == 422
    assert server.ask("GET", "/api/jobs?state=asleep")[0] == 422


def events(server: Server, last: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/api/events", headers={"Last-Event-ID": last} if last else {})
    answer, id = connection.getresponse(), ""
    try:
        for line in answer:
            name, _, value = line.decode().strip().partition(": ")
            if name == "id":
                id = value
            if name == "data":
                yield id, json.loads(value)
    finally:
        connection.close()


def test_events_tell_every_change_and_what_was_missed(server: Server, files: Path) -> None:
    here, stream = "", events(server)
    last, snapshot = next(stream)
    assert snapshot["all"] and {job["id"] for job in snapshot["jobs"]} == {job["id"] for job in server.jobs()}
    job = server.put(files / "clip.mp4", hold="1")
    seen: list[dict[str, Any]] = []
    for number, change in stream:
        here = number
        assert not change["all"]
        seen += [each for each in change["jobs"] if each["id"] == job["id"]]
        if seen and seen[-1]["facts"] and seen[-1]["held"]:
            server.ask("POST", f"/api/jobs/{job['id']}/start")
        if seen and seen[-1]["state"] == "done":
            break
    assert seen[0]["state"] in ("uploading", "queued") and seen[-1]["progress"] == 1
    numbers = [each["revision"] for each in seen]
    assert numbers == sorted(set(numbers)), "each change once, in order"
    server.ask("DELETE", f"/api/jobs/{job['id']}")
    again = next(events(server, last))[1]
    assert not again["all"] and again["removed"] == [job["id"]]
    assert next(events(server, here))[1]["removed"] == [job["id"]]
    assert next(events(server, "0000-7"))[1]["all"], "another queue's number"


def test_a_stopped_worker_is_replaced(server: Server, files: Path) -> None:
    job = server.put(files / "long.mp4", model="pahs-t")
    server.wait(job["id"], lambda job: job["state"] == "running")
    (worker,) = server.children()
    os.kill(worker, signal.SIGKILL)
    assert server.wait(job["id"])["frames"]["done"] == 250
    assert worker not in server.children()


def test_a_job_that_needs_too_much_memory_fails_and_the_worker_lives_on(server: Server, files: Path) -> None:
    workers = server.children()
    job = server.wait(server.put(files / "large.mp4")["id"], "failed")
    assert job["error"].startswith("large.mp4: ") and "memory" in job["error"]
    assert "\n" not in job["error"] and str(server.folder) not in job["error"]
    assert job["facts"]["width"] == 5760, "the inspector has a limit of its own"
    server.wait(server.put(files / "clip.mp4")["id"])
    assert server.children() == workers


def test_one_folder_has_one_server(server: Server) -> None:
    command = [
        sys.executable,
        "-m",
        "pahs",
        "serve",
        "--folder",
        str(server.folder),
        "--port",
        "0",
        "--no-browser",
    ]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 2 and "another `pahs serve` uses it" in second.stderr
    command[5] = str(server.folder / "other")
    taken = subprocess.run(
        [*command[:7], str(server.port), command[8]], capture_output=True, text=True, timeout=60
    )
    assert taken.returncode == 2 and "cannot listen there" in taken.stderr


def test_ctrl_c_ends_everything_within_seconds(files: Path, tmp_path: Path) -> None:
    with serving(tmp_path, model=files / "identity.safetensors") as server:
        job = server.put(files / "long.mp4")
        stream = events(server)
        next(stream)
        start = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - start < 8
        stream.close()
        assert not server.children() and not server.children("pahs.web.look")
    with serving(tmp_path, model=files / "identity.safetensors") as server:
        assert server.wait(job["id"])["frames"]["done"] == 250
