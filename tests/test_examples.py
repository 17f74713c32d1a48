"""The programs in examples/ that need more than a file; test_docs.py and test_vapoursynth.py run the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from clips import decoded, make_clip
from pahs.cli import app, main
from web_server import identity, serving

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_http_client_brings_its_result(tmp_path: Path) -> None:
    make_clip(tmp_path / "shaky.mp4", frames=4)
    command = [sys.executable, str(EXAMPLES / "http_client.py")]
    with serving(tmp_path / "server") as server:
        files = [f"http://127.0.0.1:{server.port}", str(tmp_path / "shaky.mp4"), str(tmp_path / "sharp.mp4")]
        done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert len(decoded(tmp_path / "sharp.mp4")) == 4


@pytest.fixture
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The manifest of a video in two segments, and `pahs` on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pahs").write_text(f'#!/bin/sh\nexec {sys.executable} -m pahs "$@"\n')
    (tmp_path / "bin" / "pahs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    make_clip(tmp_path / "film.mp4", frames=16)
    model = str(identity(tmp_path / "identity.safetensors"))
    words = ["--model", model, "--segment-frames", "8", "--chunk", "8", "--precision", "fp32"]
    assert main(["plan", str(tmp_path / "film.mp4"), "-o", str(tmp_path / "out"), *words]) == 0
    return str(tmp_path / "out" / "plan.jsonl")


def test_gnu_parallel_does_all_segments(film: str) -> None:
    subprocess.run([EXAMPLES / "parallel.sh", film, "2"], check=True)
    assert len(decoded(Path(film).with_name("film-deblurred.mp4"))) == 16


def test_an_array_of_slurm_does_all_segments(film: str) -> None:
    """Slurm runs the script once for each number of the array, as this loop does."""
    for number in range(2):
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}
        subprocess.run([EXAMPLES / "slurm.sh", film], check=True, env=environment)
    subprocess.run([EXAMPLES / "slurm.sh", film, "join"], check=True)
    assert len(decoded(Path(film).with_name("film-deblurred.mp4"))) == 16


def test_the_jobs_of_kubernetes_call_pahs_as_it_is() -> None:
    segments, join = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    for job in (segments, join):
        assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        words = container["command"]
        if words[0] == "sh":
            words = words[2].replace("$JOB_COMPLETION_INDEX", "7").split()
        assert words[0] == "pahs"
        app.parse_args(words[1:], exit_on_error=False, print_error=False)
    assert segments["spec"]["completionMode"] == "Indexed" and join["spec"]["suspend"]
