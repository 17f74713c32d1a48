"""Pictures of the page in all its states: python tests/web_pictures.py VIDEO FOLDER [--readme FILE]."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from browser import browser
from web_server import Server, serving

WIDE = {"width": 1360, "height": 900}
PHONE = {"width": 390, "height": 844}


def shoot(page: Any, folder: Path, name: str) -> None:
    page.wait_for_timeout(350)
    page.screenshot(path=folder / f"{name}.png")


def drop(page: Any, *videos: Path) -> None:
    page.set_input_files("#files", [str(video) for video in videos])


def states(page: Any, server: Server, video: Path, folder: Path) -> None:
    """Walk through everything that a user sees, with one picture of each."""
    page.goto(server.address)
    page.wait_for_selector(".welcome")
    shoot(page, folder, "01-empty")
    letter = folder / "letter.mp4"
    letter.write_text("not a video " * 100)
    drop(page, letter)
    page.get_by_role("button", name="Make it sharp").or_(page.locator(".failure")).first.wait_for()
    shoot(page, folder, "02-failed")
    drop(page, video)
    page.get_by_role("button", name="Make it sharp").wait_for()
    page.locator(".model-time", has_text="about").nth(3).wait_for(timeout=240_000)
    page.get_by_role("button", name="Make it sharp").wait_for()
    shoot(page, folder, "03-ready")
    page.get_by_role("button", name="Make it sharp").click()
    page.wait_for_timeout(1500)
    shoot(page, folder, "04-starting")
    page.locator(".line", has_text="Restoring frame").or_(page.locator(".is-done")).first.wait_for(
        timeout=240_000
    )
    shoot(page, folder, "05-running")
    page.locator("a.row.is-done").wait_for(timeout=240_000)
    viewer(page, 12)
    shoot(page, folder, "06-done")
    page.emulate_media(color_scheme="dark")
    shoot(page, folder, "07-done-dark")
    page.locator(".again summary").click()
    page.mouse.wheel(0, 900)
    shoot(page, folder, "08-again-dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    page.evaluate("scrollTo(0, 0)")
    shoot(page, folder, "09-phone-done")
    page.get_by_role("button", name="All videos").click()
    shoot(page, folder, "10-phone-list")
    page.set_viewport_size(WIDE)
    page.get_by_role("button", name="Remove all").click()
    shoot(page, folder, "11-sure")
    page.get_by_role("button", name="Keep them").click()


def viewer(page: Any, frame: int) -> None:
    """Pause at a frame."""
    page.wait_for_selector(".viewer[data-frame]")
    page.locator(".viewer").focus()
    if page.get_by_role("button", name="Pause", exact=True).locator("visible=true").count():
        page.keyboard.press(" ")
    page.locator(".seek").fill(str(frame))
    page.wait_for_selector(f'.viewer[data-frame="{frame}"]')
    page.evaluate("document.activeElement.blur()")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("video", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--readme", type=Path)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser() as started, serving(Path(place)) as server:
        page = started.new_page(viewport=WIDE, device_scale_factor=1, color_scheme="light")
        page.on("console", lambda message: print("console:", message.text))
        page.on("pageerror", lambda error: print("error:", error))
        states(page, server, chosen.video, chosen.folder)
        if chosen.readme:
            server.ask("DELETE", f"/api/jobs/{server.jobs('failed')[0]['id']}")
            page.set_viewport_size({"width": 1280, "height": 820})
            page.locator("a.row.is-done").click()
            viewer(page, 0)
            page.wait_for_timeout(9000)  # until the message has gone
            page.screenshot(path=chosen.readme)


if __name__ == "__main__":
    main()
