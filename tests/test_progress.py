"""The bar: frames, rate and time left on a terminal, silence elsewhere."""

import io
import re
import time
from pathlib import Path

import pytest

from clips import make_clip
from pahs import deblur, load
from pahs.progress import Progress, bar, describe


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called by the test itself: pytest puts its own stderr back after the fixtures."""
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return shown


def test_a_terminal_sees_count_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with bar("clip.mp4", 5) as advance:
        for _ in range(5):
            advance()
    shown = terminal.getvalue()
    assert "clip.mp4" in shown
    assert "5/5" in shown
    assert "frames" in shown


def test_a_terminal_sees_what_goes_on_before_the_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with bar("clip.mp4", 2) as advance:
        advance.enter("looking ahead", 7)
        advance.bar.refresh()  # type: ignore[attr-defined]
        advance.enter("restoring")
        advance()
        before = len(terminal.getvalue())
        advance()
    assert "looking ahead, 7 read" in terminal.getvalue()[:before]
    assert "looking ahead" not in terminal.getvalue()[before:]


def test_a_terminal_sees_how_far_a_video_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=5).path
    network = load("pahs-t", random_weights=True)
    terminal = on_a_terminal(monkeypatch)
    with bar(source.name, None) as advance:
        deblur(source, tmp_path / "sharp.mp4", model=network, advance=advance)
    assert "5/5" in terminal.getvalue()


@pytest.mark.parametrize(("stream", "quiet"), [(Terminal, True), (io.StringIO, False)])
def test_quiet_or_piped_sees_nothing(
    stream: type[io.StringIO], quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = stream()
    monkeypatch.setattr("sys.stderr", pipe)
    with bar("clip.mp4", None, quiet=quiet) as advance:
        advance.expect(3)
        advance.enter("looking ahead")
        advance(3)
    assert pipe.getvalue() == ""


def test_a_log_without_a_terminal_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    monkeypatch.setattr("pahs.progress.LOG_SECONDS", 0.05)
    with bar("clip.mp4", None) as advance:
        advance.enter("looking ahead", 7)
        time.sleep(0.2)
        advance.enter("restoring")
        advance.expect(40)
        advance(10)
        time.sleep(0.2)
    lines = pipe.getvalue().splitlines()
    assert lines[0] == "clip.mp4: looking ahead, 7 frames read"
    assert re.fullmatch(
        r"clip\.mp4: restoring, 10 of 40 frames, \d+\.\d\d frames/s, \d:\d\d:\d\d left", lines[-1]
    )
    time.sleep(0.1)
    assert pipe.getvalue().splitlines() == lines, "nothing is said after the end"


def test_time_left_is_told() -> None:
    line = describe(Progress("restoring", 30, 120), "frames", 15.0)
    assert line == "restoring, 30 of 120 frames, 2.00 frames/s, 0:00:45 left"
    assert describe(Progress("restoring", 30), "frames", 15.0) == "restoring, 30 of ? frames, 2.00 frames/s"
    assert describe(Progress(), "frames", 15.0) == "starting"
