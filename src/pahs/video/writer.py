"""Frames -> video file, with the other streams, times, rotation and tags of the source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pahs.choices import EncodeOptions
from pahs.files import Partial, remove
from pahs.video.frames import Frame, FrameSink, VideoInfo
from pahs.video.output import OutputFile, user_errors
from pahs.video.reader import VideoReader

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.stream import Stream


class VideoWriter(FrameSink):
    """Writes under a hidden name and renames at `close`, so that a half-written file never has the final name."""

    def __init__(
        self,
        path: Path | str,
        info: VideoInfo,
        options: EncodeOptions | None = None,
        source: VideoReader | None = None,
    ) -> None:
        self.path = Path(path)
        with user_errors(self.path):
            self.partial = Partial(self.path)
        try:
            self.output = OutputFile(self.partial.path, self.path, info, options or EncodeOptions(), source)
        except BaseException:
            self.partial.discard()
            raise
        self.warnings = self.output.warnings

    def prepare(self, frame: Frame) -> VideoFrame:
        """Copy a frame into the form that the encoder takes."""
        return self.output.picture(frame)

    def put(self, item: VideoFrame | Packet[Stream]) -> None:
        """Encode a prepared frame, or mux a packet of another stream of the source as it is."""
        import av

        if isinstance(item, av.VideoFrame):
            self.output.encode(item)
        else:
            self.output.copy(item)

    def _finish(self) -> None:
        self.output.finish()
        with user_errors(self.path):
            self.partial.finish()

    def _discard(self) -> None:
        # Removed first: closing would otherwise take the time to finish a file that nobody wants.
        remove(self.partial.path)
        self.output.abandon()
        self.partial.discard()
