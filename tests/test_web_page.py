"""The page in a real browser: what a user does, and what the canvas shows."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from browser import browser, chromium
from clips import make_clip
from web_server import Server, identity, serving

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no chromium is installed; `make test-web` installs it"
)
BITS, BLOCK, WIDTH, HEIGHT = 6, 16, 320, 192


def number_of(picture: np.ndarray, left: int) -> int:
    """The frame number that a row of black and white blocks shows, from column `left` on."""
    blocks = picture[8, left + 8 : left + 8 + BLOCK * BITS : BLOCK].astype(float).mean(-1)
    return sum(1 << place for place, bright in enumerate(blocks) if bright > 128)


def numbered(path: Path, frames: int) -> Path:
    """Each frame has its number at its left and at its right edge."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": "12"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(frames):
            picture = np.full((HEIGHT, WIDTH, 3), (90, 120, 150), np.uint8)
            for left in (0, WIDTH - BLOCK * BITS):
                for place in range(BITS):
                    at = left + place * BLOCK
                    picture[:BLOCK, at : at + BLOCK] = 255 * (number >> place & 1)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    identity(folder / "identity.safetensors")
    numbered(folder / "numbered.mp4", 50)
    make_clip(folder / "slow.mp4", frames=150)
    (folder / "letter.mp4").write_text("this is a letter " * 100)
    return folder


@pytest.fixture(scope="module")
def server(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("served"), model=files / "identity.safetensors") as started:
        yield started


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture
def page(chrome: Any, server: Server) -> Iterator[Any]:
    """A page of a browser that remembers nothing; it must log no error and ask no other host for anything."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    opened, errors = context.new_page(), []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: message.type == "error" and errors.append(message.text))
    foreign = []
    opened.on(
        "request", lambda r: r.url.startswith((server.address, "blob:", "data:")) or foreign.append(r.url)
    )
    opened.goto(server.address)
    yield opened
    context.close()
    assert not errors and not foreign


def choose(page: Any, video: Path, model: str = "identity") -> None:
    """Give the page a file, and a model for it."""
    page.set_input_files("#files", str(video))
    page.get_by_role("button", name="Make it sharp").wait_for()
    page.locator(f'input[name="model"][value="{model}"]').check(force=True)


def paused(page: Any) -> Any:
    """The viewer, stopped at its first frame."""
    viewer = page.locator(".viewer[data-frame]")
    viewer.wait_for(timeout=30_000)
    viewer.focus()
    if page.get_by_role("button", name="Pause", exact=True).count():
        page.keyboard.press(" ")
        page.get_by_role("button", name="Play", exact=True).wait_for()
    page.keyboard.press("Home")
    page.wait_for_selector('.viewer[data-frame="0"]')
    return viewer


def drawn(page: Any) -> np.ndarray:
    """What the canvas shows, brought back to the picture's own pixels; both sides of the divider."""
    data = page.evaluate("""() => {
        const canvas = document.querySelector('.picture canvas');
        return [canvas.toDataURL('image/png').split(',')[1], JSON.parse(canvas.dataset.place)];
    }""")
    image = Image.open(io.BytesIO(base64.b64decode(data[0]))).convert("RGB")
    left, top, scale = data[1]
    box = (left, top, left + WIDTH * scale, top + HEIGHT * scale)
    return np.asarray(image.crop(tuple(map(round, box))).resize((WIDTH, HEIGHT), Image.Resampling.BOX))


def test_from_a_file_to_a_sharp_one(page: Any, server: Server, files: Path, tmp_path: Path) -> None:
    choose(page, files / "numbered.mp4")
    page.wait_for_function("() => document.querySelector('.poster img')?.naturalWidth > 100")
    assert "320 × 192" in page.locator(".facts").inner_text()
    page.get_by_role("button", name="Make it sharp").click()
    page.locator(".is-done").wait_for(timeout=60_000)
    viewer = paused(page)

    right = WIDTH - BLOCK * BITS
    for frame in range(1, 11):
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f'.viewer[data-frame="{frame}"]')
        picture = drawn(page)
        assert (number_of(picture, 0), number_of(picture, right)) == (frame, frame)
    for frame in (9, 8):
        page.get_by_role("button", name="One frame back").click()
        page.wait_for_selector(f'.viewer[data-frame="{frame}"]')
    assert number_of(drawn(page), 0) == 8

    divider = page.get_by_role("slider", name="Divider between before and after")
    box = page.locator(".picture").bounding_box()
    grip = divider.bounding_box()
    page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 50, steps=5)
    page.mouse.up()
    assert abs(int(divider.get_attribute("aria-valuenow")) - 20) <= 1
    divider.focus()
    page.keyboard.press("ArrowRight")
    assert abs(int(divider.get_attribute("aria-valuenow")) - 22) <= 1

    fitted = float(viewer.get_attribute("data-zoom"))
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -600)
    assert float(viewer.get_attribute("data-zoom")) == pytest.approx(4 * fitted, rel=0.01)
    before = page.locator(".picture canvas").get_attribute("data-place")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + box["height"] / 2 + 40, steps=3)
    page.mouse.up()
    assert page.locator(".picture canvas").get_attribute("data-place") != before, "panned"
    viewer.focus()
    page.keyboard.press("0")
    assert float(viewer.get_attribute("data-zoom")) == fitted

    with page.expect_download() as saved:
        page.get_by_role("button", name="Save this frame").click()
    assert saved.value.suggested_filename == "numbered-frame-9.png"
    saved.value.save_as(tmp_path / "frame.png")
    frame = np.asarray(Image.open(tmp_path / "frame.png").convert("RGB"))
    assert frame.shape == (HEIGHT, WIDTH, 3) and number_of(frame, 0) == number_of(frame, right) == 8

    with page.expect_download() as saved:
        page.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "numbered-deblurred.mp4"
    saved.value.save_as(tmp_path / "result.mp4")
    job = page.url.partition("#")[2]
    assert (tmp_path / "result.mp4").read_bytes() == server.ask("GET", f"/api/jobs/{job}/result")[1]


def test_playing_keeps_both_sides_in_step(page: Any, server: Server, files: Path) -> None:
    job = server.wait(server.put(files / "numbered.mp4")["id"])
    page.goto(f"{server.address}#{job['id']}")
    paused(page)
    right = WIDTH - BLOCK * BITS
    page.get_by_role("combobox", name="Speed").select_option("0.5")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Play", exact=True).click()
    seen = []
    for _ in range(12):
        picture = drawn(page)
        assert number_of(picture, 0) == number_of(picture, right)
        seen.append(number_of(picture, 0))
        page.wait_for_timeout(60)
    assert len(set(seen)) > 3, "it plays"


def test_progress_is_live_and_a_reload_loses_nothing(page: Any, files: Path) -> None:
    choose(page, files / "slow.mp4", "pahs-t")
    page.get_by_role("button", name="Make it sharp").click()
    page.locator(".line", has_text="Restoring frame").wait_for(timeout=60_000)
    assert page.locator(".ribbon").count() == 1, "the first look is there before the end"
    page.reload()
    page.locator('[data-action="Pause"]').click()
    page.locator('[data-action="Go on"]').click()
    page.get_by_role("link", name="Download").wait_for(timeout=60_000)
    assert page.locator(".row[aria-current] .name").inner_text() == "slow.mp4"


def test_cancel_a_running_job_and_retry_it(page: Any, files: Path) -> None:
    choose(page, files / "slow.mp4", "pahs-t")
    page.get_by_role("button", name="Make it sharp").click()
    page.locator(".line", has_text="Looking ahead").or_(
        page.locator(".line", has_text="Restoring")
    ).wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.locator(".row[aria-current].is-cancelled").wait_for(timeout=30_000)
    page.locator(".again summary").click()
    page.locator('input[name="model"][value="identity"]').check(force=True)
    page.get_by_role("button", name="Start again").click()
    page.get_by_role("link", name="Download").wait_for(timeout=60_000)


def test_what_is_no_video_says_so_and_can_be_tried_again(page: Any, files: Path, tmp_path: Path) -> None:
    page.set_input_files("#files", str(files / "letter.mp4"))
    failure = page.locator(".failure")
    failure.wait_for()
    assert "letter.mp4: not a readable video" in failure.inner_text()
    page.get_by_role("button", name="Retry").click()
    page.locator(".row[aria-current].is-failed").wait_for()
    failure.wait_for()
    page.get_by_role("button", name="Remove", exact=True).click()
    page.locator(".row", has_text="letter.mp4").wait_for(state="detached")
    (tmp_path / "photo.jpg").write_bytes(b"x")
    page.set_input_files("#files", str(tmp_path / "photo.jpg"))
    page.get_by_text("photo.jpg is not a video this page knows.").wait_for()


def test_dark_and_light_and_phone(page: Any, server: Server, files: Path) -> None:
    server.wait(server.put(files / "numbered.mp4")["id"])
    paper = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(paper)
    assert dark != light
    page.get_by_role("button", name="Change between light and dark").click()
    assert page.evaluate(paper) == light
    page.reload()
    assert page.evaluate(paper) == light, "it is remembered"
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("link", name="numbered.mp4").first.or_(page.locator(".viewer")).first.wait_for()
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(wide)
    if page.get_by_role("button", name="All videos").is_visible():
        page.get_by_role("button", name="All videos").click()
    assert not page.evaluate(wide)
    page.locator("a.row").first.click()
    page.get_by_role("button", name="All videos").wait_for()


def test_every_control_has_a_name(page: Any, server: Server, files: Path) -> None:
    job = server.wait(server.put(files / "numbered.mp4")["id"])
    page.goto(f"{server.address}#{job['id']}")
    paused(page)
    page.locator(".again summary").click()
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, a, input, select, [role=slider]')]
        .filter((e) => e.offsetParent !== null)
        .filter((e) => !(e.getAttribute('aria-label') || e.innerText.trim() || (e.labels && e.labels.length)))
        .map((e) => e.outerHTML)""")
    assert not nameless


def test_the_page_is_small(page: Any) -> None:
    page.reload(wait_until="load")
    sizes = page.evaluate("""() => [...performance.getEntriesByType('resource'),
        ...performance.getEntriesByType('navigation')]
        .filter((e) => !e.name.includes('/api/')).map((e) => e.decodedBodySize)""")
    assert 20_000 < sum(sizes) < 150_000
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    print(f"page: {sum(sizes)} bytes in {len(sizes)} files, first contentful paint after {paint:.0f} ms")


def test_a_result_without_a_comparison_is_shown_with_the_reason(
    page: Any, server: Server, files: Path
) -> None:
    page.goto("about:blank")  # it would ask for the comparison while that is still there
    job = server.wait(server.put(files / "numbered.mp4")["id"])
    with closing(sqlite3.connect(server.folder / "queue.sqlite", timeout=30)) as queue, queue:
        queue.execute(
            "UPDATE jobs SET preview = NULL, warnings = ? WHERE id = ?",
            (json.dumps(["the comparison could not be made: no pictures"]), job["id"]),
        )
    page.goto(f"{server.address}#{job['id']}")
    page.get_by_role("link", name="Download").wait_for()
    page.locator(".poster img").wait_for()
    assert "the comparison could not be made" in page.locator(".warnings").inner_text()
    assert not page.locator(".viewer").count()
