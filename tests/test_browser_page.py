"""The page that restores videos inside the browser: the frames are those of PyTorch, and nothing leaves the folder."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

import pahs
from browser import browser, chromium
from clips import make_clip, moving_texture
from pahs import PahsError
from pahs.cli import main
from pahs.export import page as page_folder
from pahs.export.page import PACKAGES, export_page

ARCHIVES = Path(__file__).parents[1] / "build" / "npm"
FRAMES, HEIGHT, WIDTH = 10, 50, 70

in_browser = pytest.mark.skipif(
    chromium() is None or not all((ARCHIVES / package.archive).is_file() for package in PACKAGES),
    reason="no chromium, or no packages of npm in build/npm; `make browser npm-packages` installs both",
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page behind a server that knows nothing of it."""
    folder = tmp_path_factory.mktemp("served") / "page"
    export_page("pahs-t", folder, ARCHIVES)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    """The page in a browser; it must log no error and ask no other host for anything."""
    with browser() as chrome:
        context = chrome.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
        opened, errors, foreign = context.new_page(), [], []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda message: message.type == "error" and errors.append(message.text))
        opened.on("request", lambda r: r.url.startswith((address, "blob:", "data:")) or foreign.append(r.url))
        opened.goto(address)
        opened.wait_for_selector("html[data-ready]")
        yield opened
        context.close()
        assert not errors and not foreign


def choose(page: Any, *files: Path) -> None:
    page.set_input_files("#files", [str(file) for file in files])
    page.get_by_role("button", name="Make it sharp").or_(page.locator(".failure")).first.wait_for()


def restored(page: Any, folder: Path, *links: str) -> list[Path]:
    """Start, wait, and save what the page offers."""
    page.get_by_role("button", name="Make it sharp").click()
    page.get_by_role("link", name="Download").or_(page.locator(".failure")).first.wait_for(timeout=90_000)
    found = []
    for name in links:
        with page.expect_download() as saved:
            page.get_by_role("link", name=name).click()
        found.append(folder / saved.value.suggested_filename)
        saved.value.save_as(found[-1])
    return found


@pytest.mark.slow
@in_browser
def test_the_frames_are_those_of_pytorch(page: Any, tmp_path: Path) -> None:
    """Pictures in, so that both see the same pixels; their size is odd, and is padded."""
    clip = np.rint(255 * moving_texture(FRAMES, HEIGHT, WIDTH)).astype(np.uint8)
    files = [tmp_path / f"blurry-{t}.png" for t in range(FRAMES)]
    for file, frame in zip(files, clip, strict=True):
        Image.fromarray(frame).save(file)
    choose(page, *files)
    assert "WebAssembly" in page.locator("#engine").inner_text()
    assert page.evaluate("crossOriginIsolated"), "the processor computes with several threads"
    page.get_by_label("Every frame as PNG").check()
    video, archive = restored(page, tmp_path, "Download", "PNG")
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        got = [np.asarray(Image.open(io.BytesIO(opened.read(name)))) for name in opened.namelist()]
    expected = list(pahs.stream(pahs.load("pahs-t", device="cpu", precision="fp32"), list(clip)))
    assert len(got) == len(expected) == FRAMES
    differences = [np.abs(a[..., :3].astype(int) - b).max() for a, b in zip(got, expected, strict=True)]
    changes = [np.abs(a.astype(int) - b).max() for a, b in zip(clip, expected, strict=True)]
    assert max(differences) <= 1 < 5 < min(changes), (differences, changes)
    with av.open(str(video)) as opened:
        stream = opened.streams.video[0]
        assert (stream.width, stream.height) == (WIDTH, HEIGHT)
        assert len(list(opened.decode(stream))) == FRAMES
    page.locator(".viewer[data-frame]").wait_for()


@pytest.mark.slow
@in_browser
def test_a_part_of_a_video_keeps_its_sound_and_can_be_cancelled(page: Any, tmp_path: Path) -> None:
    make_clip(tmp_path / "shaky.mp4", frames=12, audio="aac", rotation=90)
    choose(page, tmp_path / "shaky.mp4")
    assert "48 × 64" in page.locator(".facts").inner_text(), "rotation is applied"
    page.get_by_role("button", name="Make it sharp").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Make it sharp").wait_for()
    page.get_by_label("Part begins at").fill("0.2")
    page.get_by_label("Part ends at").fill("0.1")
    assert page.get_by_role("button", name="Make it sharp").is_disabled()
    page.get_by_label("Part ends at").fill("0.4")
    (video,) = restored(page, tmp_path, "Download")
    assert video.name == "shaky-deblurred.mp4"
    with av.open(str(video)) as opened:
        assert opened.streams.audio[0].codec_context.name == "aac"
        assert len(list(opened.decode(video=0))) == 5


@pytest.mark.slow
@in_browser
def test_what_it_cannot_restore_is_said(page: Any, tmp_path: Path) -> None:
    (tmp_path / "letter.mp4").write_text("this is a letter " * 100)
    choose(page, tmp_path / "letter.mp4")
    assert "letter.mp4 is no video file that a browser reads" in page.locator(".failure").inner_text()
    for number, size in enumerate([(64, 64), (64, 48), (8, 64)]):
        Image.new("RGB", size).save(tmp_path / f"{number}.png")
    choose(page, tmp_path / "2.png")
    assert "the smallest is 16 × 16" in page.locator(".failure").inner_text()
    Image.new("RGB", (4000, 3000)).save(tmp_path / "large.png")
    choose(page, tmp_path / "large.png")
    assert "At 4000 × 3000 this browser's memory does not suffice" in page.locator(".warnings").inner_text()
    choose(page, tmp_path / "0.png", tmp_path / "1.png")
    page.get_by_role("button", name="Make it sharp").click()
    page.locator(".failure", has_text="1.png is 64 × 48, the first picture 64 × 64").wait_for(timeout=60_000)


def test_wrong_use_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*options: str) -> str:
        assert main(["export", "pahs-t", "-o", str(tmp_path / "page"), *options]) == 2
        assert not (tmp_path / "page").exists()
        (line,) = capsys.readouterr().err.strip().splitlines()
        return str(line)

    page = ("--format", "browser", "--runtime", str(tmp_path))
    assert "holds no onnxruntime-web-1.30.0.tgz; run `npm pack onnxruntime-web@1.30.0 mediabunny@" in said(
        *page
    )
    for package in PACKAGES:
        (tmp_path / package.archive).write_text("<html>not found</html>")
    assert "onnxruntime-web-1.30.0.tgz: is damaged or another file" in said(*page)
    assert "--precision fp16: the page runs graphs in fp32" in said(*page, "--precision", "fp16")
    assert "--runtime: only --format browser takes it" in said("--runtime", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(page_folder.shutil, "which", lambda name: None)
    assert "from npm, which is not installed; where it is, run `npm pack" in said(*page[:2])
    (tmp_path / "page").mkdir()
    with pytest.raises(PahsError, match="page: exists already; name another folder"):
        export_page("pahs-t", tmp_path / "page", tmp_path, overwrite=True)
