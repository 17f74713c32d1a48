"""Pictures of the page in all its states: python tests/web_pictures.py VIDEO FOLDER [--readme FILE]."""

from __future__ import annotations

import argparse
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from browser import browser
from web_server import Server, serving

WIDE = {"width": 1360, "height": 900}
PHONE = {"width": 390, "height": 844}
LONGER = 6
"""Seconds of the video in which waiting, first look, progress and pause are seen."""


class Album:
    """Writes numbered pictures of a page."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder, self.count = page, folder, 0

    def shoot(self, name: str) -> None:
        self.count += 1
        self.page.wait_for_timeout(350)
        self.page.screenshot(path=self.folder / f"{self.count:02}-{name}.png")


def looped(video: Path, target: Path) -> Path:
    """The video forth and back, small, for some seconds."""
    with av.open(str(video)) as container:
        frames = [
            frame.reformat(width=320, height=180, format="yuv420p") for frame in container.decode(video=0)
        ]
    with av.open(str(target), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        around = frames + frames[::-1]
        for number in range(25 * LONGER):
            frame = around[number % len(around)]
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return target


def drop(page: Any, *videos: Path) -> None:
    page.set_input_files("#files", [str(video) for video in videos])


def start(page: Any) -> None:
    page.get_by_role("button", name="Make it sharp").click()


def before_it_runs(album: Album, address: str, long: Path) -> None:
    """Empty, a file that is none, an upload that is slow, and one that was cut."""
    page = album.page
    page.goto(address)
    page.wait_for_selector(".welcome")
    album.shoot("empty")
    letter = album.folder / "letter.mp4"
    letter.write_text("not a video " * 100)
    drop(page, letter)
    page.locator(".failure").wait_for()
    album.shoot("failed")
    large = album.folder / "holiday.mp4"
    large.write_bytes(long.read_bytes() * (1 + 8_000_000 // long.stat().st_size))
    line = page.context.new_cdp_session(page)
    line.send("Network.enable")
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 600_000}
    line.send("Network.emulateNetworkConditions", slow)
    drop(page, large)
    page.locator(".row[aria-current] .status", has_text="Uploading, 2").wait_for(timeout=60_000)
    album.shoot("uploading")
    page.on("dialog", lambda dialog: dialog.accept())
    page.reload()
    page.locator(".row", has_text="Upload interrupted").click()
    album.shoot("interrupted")
    page.get_by_role("button", name="Cancel").click()
    page.locator(".row.is-cancelled").wait_for()
    album.shoot("upload-cancelled")
    page.get_by_role("button", name="Remove", exact=True).click()


def while_it_runs(album: Album, long: Path) -> None:
    """From a choice to a result, with everything that one can do on the way."""
    page = album.page
    drop(page, long)
    page.get_by_role("button", name="Make it sharp").wait_for()
    page.locator(".model-time", has_text="about").nth(3).wait_for(timeout=400_000)
    album.shoot("ready")
    page.locator('input[name="model"][value="pahs-t"]').check(force=True)
    start(page)
    line = page.locator(".line")
    line.filter(has_text="first look").wait_for(timeout=60_000)
    album.shoot("making-a-first-look")
    running = page.url
    drop(page, long)
    page.get_by_role("button", name="Make it sharp").wait_for()
    start(page)
    line.filter(has_text="Waiting").wait_for()
    album.shoot("queued")
    page.get_by_role("button", name="Hold").click()
    page.goto(running)
    page.locator(".ribbon").wait_for(timeout=400_000)
    viewer(page, 4)
    album.shoot("first-look")
    line.filter(has_text="Restoring frame").wait_for(timeout=400_000)
    album.shoot("running")
    page.emulate_media(color_scheme="dark")
    album.shoot("running-dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    page.evaluate("scrollTo(0, 0)")
    album.shoot("phone-running")
    page.set_viewport_size(WIDE)
    page.get_by_role("button", name="Pause", exact=True).last.or_(
        page.locator('[data-action="Pause"]')
    ).last.click()
    line.filter(has_text="Paused").wait_for()
    album.shoot("paused")
    page.get_by_role("button", name="Cancel").click()
    page.locator(".row[aria-current].is-cancelled").wait_for(timeout=60_000)
    album.shoot("cancelled")
    page.get_by_role("button", name="Remove", exact=True).click()
    page.wait_for_timeout(500)
    page.get_by_role("button", name="Remove", exact=True).click()


def when_it_is_done(album: Album, video: Path) -> None:
    page = album.page
    drop(page, video)
    start(page)
    page.locator("a.row.is-done").wait_for(timeout=600_000)
    viewer(page, 12)
    album.shoot("done")
    page.keyboard.press("1")
    page.locator(".viewer").focus()
    for _ in range(4):
        page.keyboard.press("+")
    album.shoot("zoomed")
    page.keyboard.press("0")
    page.emulate_media(color_scheme="dark")
    album.shoot("done-dark")
    page.locator(".again summary").click()
    page.mouse.wheel(0, 900)
    album.shoot("again-dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    page.evaluate("scrollTo(0, 0)")
    album.shoot("phone-done")
    page.get_by_role("button", name="All videos").click()
    album.shoot("phone-list")
    page.set_viewport_size(WIDE)
    page.get_by_role("button", name="Remove all").click()
    album.shoot("sure")
    page.get_by_role("button", name="Keep them").click()


def of_a_team(album: Album, folder: Path) -> None:
    """Who wants in, and what is seen when the server has gone."""
    page = album.page
    with serving(folder, "--host", "0.0.0.0", "--token", "correct-horse") as team:
        page.goto(f"http://127.0.0.1:{team.port}/")
        album.shoot("sign-in")
        page.get_by_label("Token").fill("battery-staple")
        page.get_by_role("button", name="Sign in").click()
        page.locator("#wrong").wait_for()
        album.shoot("sign-in-wrong")
        page.get_by_label("Token").fill("correct-horse")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector(".welcome")
        team.kill()
        page.locator("#link").wait_for()
        album.shoot("server-gone")


def viewer(page: Any, frame: int) -> None:
    """Pause at a frame."""
    page.wait_for_selector(".viewer[data-frame]")
    page.locator(".viewer").focus()
    if page.get_by_role("button", name="Pause", exact=True).locator("visible=true").count():
        page.keyboard.press(" ")
    page.locator(".seek").fill(str(frame))
    page.wait_for_selector(f'.viewer[data-frame="{frame}"]')
    page.evaluate("document.activeElement.blur()")


def for_the_readme(page: Any, server: Server, file: Path) -> None:
    for failed in server.jobs("failed"):
        server.ask("DELETE", f"/api/jobs/{failed['id']}")
    page.set_viewport_size({"width": 1280, "height": 820})
    page.locator("a.row.is-done").click()
    viewer(page, 0)
    page.wait_for_timeout(9000)  # until the message has gone
    page.screenshot(path=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("video", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--readme", type=Path)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser() as started:
        page = started.new_page(viewport=WIDE, device_scale_factor=1, color_scheme="light")
        page.on("pageerror", lambda error: print("error:", error))
        album, long = Album(page, chosen.folder), looped(chosen.video, chosen.folder / "street.mp4")
        with serving(Path(place) / "own") as server:
            page.on("console", lambda message: print("console:", message.text))
            before_it_runs(album, server.address, long)
            while_it_runs(album, long)
            when_it_is_done(album, chosen.video)
            if chosen.readme:
                for_the_readme(page, server, chosen.readme)
        of_a_team(album, Path(place) / "team")


if __name__ == "__main__":
    main()
