"""The units of work of a plan: a segment, a video in one piece, and the join of a video's segments.

Each is idempotent: where its result exists nothing is done, and a result appears whole or not at all. So it is harmless
to run a unit again, or twice at the same time.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pahs.cluster import manifest, store
from pahs.cluster.manifest import Segment, Settings, Video, segment_folder
from pahs.cluster.planning import plan_video
from pahs.deblur import DeblurOptions, deblur
from pahs.errors import PahsError
from pahs.progress import Advance

if TYPE_CHECKING:
    from torch import Tensor

    from pahs.networks import Deblurrer


@dataclass(frozen=True)
class Done:
    """What became of a unit."""

    frames: int | None
    """Frames of the result; None where it existed already."""
    seconds: float
    node: str
    """The machine that did it."""
    warnings: tuple[str, ...] = ()
    planned: Video | None = None
    """A video that turned out to be long: its segments are to be done instead."""


class Runner:
    """Does units of one plan, one after the other, with a network that stays loaded."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._network: Deblurrer | None = None
        self._source: tuple[str, Path] | None = None
        self._held = ExitStack()

    def close(self) -> None:
        """Give the copy of the last source back."""
        self._held.close()
        self._source = None

    def network(self) -> Deblurrer:
        """The plan's network, and no other."""
        if self._network is None:
            self._network = self.load()
        return self._network

    def load(self) -> Deblurrer:
        from pahs.runtime import weights
        from pahs.runtime.load import load

        settings = self.settings
        bundled = weights.bundled(settings.model)
        with store.fetched(settings.model if bundled is None else str(bundled)) as file:
            found = weights.describe(file).metadata.get("sha256", "")
            if found != settings.sha256:
                raise PahsError(
                    f"{settings.model}: is another version (checksum {found[:12]}) than the plan was made with "
                    f"({settings.sha256[:12]}); run pahs plan again, or install that version"
                )
            return load(file, settings.device, settings.precision)

    def start(self, video: Video) -> Done:
        """Plan a video and, if it is one unit, do it."""
        if store.exists(video.target):
            return self._done(None, time.monotonic())
        began = time.monotonic()
        planned = self._planned(video)
        if planned.segments:
            return replace(self._done(None, began), planned=planned)
        return self.whole(planned)

    def _planned(self, video: Video) -> Video:
        """The video with its segments; its scenes are looked for once, and the answer lies with its segments."""
        file = self.source(video)
        sized = replace(video, size=file.stat().st_size if file.is_file() else None)
        address = f"{segment_folder(self.settings, sized)}/{manifest.NAME}"
        if store.exists(address):
            return manifest.read(address).videos[0]
        planned = plan_video(video, self.settings, file, self.advance())
        if planned.segments:
            manifest.write(manifest.Plan(self.settings, (planned,)), address)
        return planned

    def whole(self, video: Video) -> Done:
        """Restore a video in one piece."""
        began, settings = time.monotonic(), self.settings
        if store.exists(video.target):
            return self._done(None, began)
        options = DeblurOptions(
            look_ahead=settings.look_ahead,
            scene_cuts=settings.scene_cuts,
            chunk=settings.chunk,
            strength=settings.strength,
            deinterlace=settings.deinterlace,
            encode=settings.encode,
        )
        source, network = self.source(video), self.network()
        with self._writing(video.target, video.source) as path:
            report = deblur(source, path, options, network, self.advance())
        return self._done(report.frames, began, report.warnings)

    def segment(self, video: Video, segment: Segment) -> Done:
        """Restore a segment into a file of packets."""
        from pahs.video.stretch import Stretch, write_stretch

        began, settings = time.monotonic(), self.settings
        address = f"{segment_folder(settings, video)}/{segment.file}"
        if store.exists(address) or store.exists(video.target):
            return self._done(None, began)
        source, network = self.source(video), self.network()
        stretch = Stretch(
            segment.first, segment.begin, segment.end, segment.last, segment.pts, segment.last_pts
        )

        def restore(frames: Iterator[Tensor]) -> Iterator[Tensor]:
            return frames if not settings.strength else restored(network, frames, segment, settings)

        try:
            with self._writing(address, video.source) as path:
                frames = write_stretch(
                    source,
                    path,
                    Path(store.name_of(video.target)),
                    restore,
                    stretch,
                    encode=settings.encode,
                    device=network.device,
                    strength=settings.strength,
                    deinterlace=settings.deinterlace,
                    advance=self.advance(),
                )
        except PahsError:
            # Another driver may have joined the video, and removed the folder, in this very moment.
            if store.exists(video.target):
                return self._done(None, began)
            raise
        return self._done(frames, began)

    def join(self, video: Video) -> Done:
        """Put a video together from its segments, and remove these."""
        from pahs.video.join import join

        began, settings = time.monotonic(), self.settings
        folder = segment_folder(settings, video)
        if store.exists(video.target):
            store.delete_folder(folder)
            return self._done(None, began)
        missing = missing_segments(settings, video)
        if missing and not store.exists(video.target):
            raise PahsError(
                f"{video.target}: {len(missing)} of its {len(video.segments)} segments are missing, the first "
                f"is number {missing[0].number}; run them before --join"
            )
        source = self.source(video)
        try:
            with ExitStack() as held, self._writing(video.target, video.source) as path:
                files = [held.enter_context(store.fetched(f"{folder}/{x.file}")) for x in video.segments]
                warnings = join(source, path, files, settings.encode, settings.deinterlace)
        except PahsError:
            if store.exists(video.target):
                return self._done(None, began)
            raise
        store.delete_folder(folder)
        if video.lost:
            name = store.name_of(video.source)
            warnings = (*warnings, f"{name}: {video.lost} damaged or missing frames were left out")
        return self._done(video.frames, began, warnings)

    def advance(self) -> Advance:
        """What a unit reports its frames to."""
        return Advance()

    def source(self, video: Video) -> Path:
        """The source as a path of this machine; a copy is kept until another source is asked for."""
        if self._source is None or self._source[0] != video.source:
            self.close()
            self._source = (video.source, self._held.enter_context(store.fetched(video.source)))
        path = self._source[1]
        if not path.exists():
            raise PahsError(f"{video.source}: no such file or folder")
        if video.size is not None and path.stat().st_size != video.size:
            raise PahsError(f"{video.source}: was changed after the plan was made; run pahs plan again")
        return path

    @contextmanager
    def _writing(self, address: str, source: str) -> Iterator[Path]:
        """A path to write a result under; in what users are told, files have the names that they know."""
        with store.writing(address) as path:
            try:
                yield path
            except PahsError as error:
                local = "" if self._source is None else str(self._source[1])
                words = str(error).replace(str(path), address)
                raise PahsError(words.replace(local, source) if local else words) from None

    def _done(self, frames: int | None, began: float, warnings: tuple[str, ...] = ()) -> Done:
        return Done(frames, time.monotonic() - began, socket.gethostname(), warnings)


def missing_segments(settings: Settings, video: Video) -> list[Segment]:
    """The segments of a video that are not done."""
    there = store.names_in(segment_folder(settings, video))
    return [segment for segment in video.segments if segment.file not in there]


def restored(
    network: Deblurrer, frames: Iterator[Tensor], segment: Segment, settings: Settings
) -> Iterator[Tensor]:
    """The frames of a segment restored, and those that are only read before and after it as they are."""
    from pahs import engine

    seen: deque[Tensor] = deque(maxlen=max(1, segment.last - segment.end))

    def watched() -> Iterator[Tensor]:
        for frame in frames:
            seen.append(frame)
            yield frame

    stream = engine.stream(
        network,
        watched(),
        look_ahead=settings.look_ahead,
        chunk=settings.chunk,
        scene_cuts=[cut - segment.first for cut in segment.cuts],
        warm_up=segment.begin - segment.first,
    )
    yield from islice(stream, segment.end - segment.first)
    yield from list(seen)[: segment.last - segment.end]
