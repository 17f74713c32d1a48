"""Two fields of different moments -> one whole picture, by FFmpeg's bwdif."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av import VideoFrame
    from av.filter import Graph


class Deinterlacer:
    """As many pictures as there were frames, at the same times; it holds one back."""

    def __init__(self, time_base: Fraction) -> None:
        self._time_base = time_base
        self._graph: Graph | None = None
        self._size = (0, 0)

    def put(self, frame: VideoFrame) -> Iterator[VideoFrame]:
        if self._graph is None:
            self._graph, self._size = self._open(frame), (frame.width, frame.height)
        if (frame.width, frame.height) != self._size:
            yield frame  # the reader refuses it
            return
        self._graph.vpush(frame)
        yield from self._ready()

    def finish(self) -> Iterator[VideoFrame]:
        if self._graph is not None:
            self._graph.vpush(None)
            yield from self._ready()

    def _open(self, frame: VideoFrame) -> Graph:
        from av.filter import Graph

        graph = Graph()
        source = graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=self._time_base
        )
        graph.link_nodes(
            source, graph.add("bwdif", "mode=send_frame:deint=all"), graph.add("buffersink")
        ).configure()
        return graph

    def _ready(self) -> Iterator[VideoFrame]:
        import av

        assert self._graph is not None
        while True:
            try:
                frame = self._graph.vpull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            # The filter counts in half units, because it could give a picture for each field.
            unit = (frame.time_base or self._time_base) / self._time_base
            frame.pts = None if frame.pts is None else round(frame.pts * unit)
            frame.duration = round((frame.duration or 0) * unit)
            frame.time_base = self._time_base
            yield frame
