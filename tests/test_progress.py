"""The bar: frames, rate and time left on a terminal, silence elsewhere."""

import io
from pathlib import Path

import pytest

from clips import make_clip
from pahs import deblur, load
from pahs.progress import bar


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
        advance.before("looking ahead, 7 read")
        advance.progress.refresh()  # type: ignore[attr-defined]
        advance()
        before = len(terminal.getvalue())
        advance.before("looking ahead, 8 read")
        advance()
    assert "looking ahead, 7 read" in terminal.getvalue()[:before]
    assert "looking ahead, 8 read" not in terminal.getvalue()


def test_a_terminal_sees_how_far_a_video_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_clip(tmp_path / "clip.mp4", frames=5).path
    network = load("pahs-t", random_weights=True)
    terminal = on_a_terminal(monkeypatch)
    deblur(source, tmp_path / "sharp.mp4", network, quiet=False)
    assert "5/5" in terminal.getvalue()


@pytest.mark.parametrize(("stream", "quiet"), [(Terminal, True), (io.StringIO, False)])
def test_quiet_or_piped_sees_nothing(
    stream: type[io.StringIO], quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = stream()
    monkeypatch.setattr("sys.stderr", pipe)
    with bar("clip.mp4", None, quiet=quiet) as advance:
        advance.expect(3)
        advance.before("looking ahead")
        advance(3)
    assert pipe.getvalue() == ""
