"""The programs in examples/ that need more than a file; test_docs.py and test_vapoursynth.py run the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from clips import decoded, make_clip
from web_server import serving

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_http_client_brings_its_result(tmp_path: Path) -> None:
    make_clip(tmp_path / "shaky.mp4", frames=4)
    command = [sys.executable, str(EXAMPLES / "http_client.py")]
    with serving(tmp_path / "server") as server:
        files = [f"http://127.0.0.1:{server.port}", str(tmp_path / "shaky.mp4"), str(tmp_path / "sharp.mp4")]
        done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert len(decoded(tmp_path / "sharp.mp4")) == 4
