"""A path is opened as a file, whatever its name looks like: FFmpeg takes names for URLs and patterns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pahs.errors import PahsError

if TYPE_CHECKING:
    from av.container import InputContainer, OutputContainer


def open_video(path: Path) -> InputContainer:
    """Open a file for reading; what is no file, or no video, is named."""
    import av

    if not path.exists():
        raise PahsError(f"{path}: no such file")
    if path.is_dir():
        raise PahsError(f"{path}: is a folder, not a video file")
    if not path.is_file():
        raise PahsError(f"{path}: is a pipe or a device; save the video to a file first")
    if path.stat().st_size == 0:
        raise PahsError(f"{path}: the file is empty")
    # A name such as shot%03d.gif would mean numbered pictures, except to the demuxer of GIF itself.
    format = "gif" if path.suffix.lower() == ".gif" and "%" in str(path) else None
    try:
        return av.open(_url(path), "r", format=format, metadata_errors="replace")
    except (PermissionError, av.error.PermissionError):
        raise PahsError(f"{path}: cannot be read; check its permissions") from None
    except (av.FFmpegError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PahsError(f"{path}: not a readable video file ({reason}); it may be incomplete") from None


def create_video(path: Path) -> OutputContainer:
    """Open a file for writing; the container is that of its ending."""
    import av

    return av.open(_url(path), "w")


def _url(path: Path) -> str:
    """Without a protocol, `Talk: intro.mp4` has the protocol Talk, and `file:x.mp4` would open x.mp4."""
    return f"file:{path}"
