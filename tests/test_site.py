"""The documents as a site: complete, linked, and without a reference to another host."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import pahs
from browser import browser, chromium

ROOT = Path(__file__).parents[1]
ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a dead link or an anchor that does not exist ends the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class References(HTMLParser):
    """What a page loads and where it leads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "poster", "content", "srcset") and value:
                self.found.append(value)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_no_page_and_no_style_refers_to_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        elsewhere = [reference for reference in References(page).found if ELSEWHERE.match(reference)]
        assert not elsewhere, f"{page.relative_to(site)}: {elsewhere}"
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        links = re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')]+)", style.read_text("utf-8"))
        assert not [link for link in links if ELSEWHERE.match(link)], style


def test_every_page_is_there_and_can_be_found(site: Path) -> None:
    home = set(References(site / "index.html").found)
    for source in (ROOT / "docs").rglob("*.md"):
        page = source.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / page).is_file(), page
        assert str(page) in home, f"{source.relative_to(ROOT)}: mkdocs.yml does not list it under nav"


def test_the_api_says_what_the_docstrings_say(site: Path) -> None:
    text = " ".join(" ".join(References(site / "api.html").text).split())
    for name in pahs.__all__:
        assert name == "__version__" or name in text, name
    assert "Deblur frames as they come; yields one for each, in order" in text
    assert "Share of the network's change that is made" in text, "the meaning of a field of DeblurOptions"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(chromium() is None, reason="needs chromium: make browser")
def test_a_browser_asks_no_other_host_and_finds_words(address: str, site: Path) -> None:
    asked: set[str] = set()
    with browser() as started:
        page = started.new_page()
        page.on("request", lambda request: asked.add(request.url))
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name in ("index.html", "api.html", "tutorials/research.html"):
            page.goto(f"{address}/{name}")
            page.wait_for_load_state("networkidle")
        page.locator("input.md-search__input").click()
        page.keyboard.type("attention")
        page.locator(".md-search-result__link").first.wait_for()
    assert not errors
    assert len(asked) > 5
    assert all(url.startswith((address, "data:", "blob:")) for url in asked), asked
