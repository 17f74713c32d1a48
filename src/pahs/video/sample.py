"""How large a video becomes and how long its codecs take, from a few frames that are encoded as they are."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from pahs.choices import EncodeOptions
from pahs.errors import PahsError
from pahs.video.cut import Part, PartReader
from pahs.video.frames import VideoInfo
from pahs.video.writer import VideoWriter

FRAMES, PIXELS = 24, 1 << 24
"""So many frames, or frames of so many pixels together, are encoded."""
WARM_UP = 2
"""Frames whose time does not count: the decoder needs several before it gives the first."""
KEY_FRAME_EVERY = 250
"""Frames from one key frame to the next with the encoders' own settings."""


@dataclass(frozen=True)
class Sample:
    """What a few encoded frames say of all."""

    key: float
    """Mean bytes of a key frame."""
    other: float
    """Mean bytes of the other frames."""
    copied: float
    """Bytes of sound that belong to one frame."""
    seconds: float
    """To decode and encode one frame."""

    def size(self, frames: int) -> int:
        """Bytes of so many frames with their sound, about."""
        keys = -(-frames // KEY_FRAME_EVERY)
        return round(keys * self.key + (frames - keys) * self.other + frames * self.copied)


def encode_sample(path: Path, info: VideoInfo, part: Part | None, encode: EncodeOptions) -> Sample | None:
    """Encode some frames from the middle of a video or of its part; nothing where that fails."""
    import av

    begin = part.start if part is not None else Fraction(0)
    middle = begin + max(Fraction(0), Fraction((info.frame_count or 0) - FRAMES) / info.rate / 2)
    most = WARM_UP + max(4, min(FRAMES, PIXELS // (info.width * info.height)))
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "sample.mkv"
            with PartReader(path, Part(middle)) as source, VideoWriter(file, source.info, encode) as writer:
                bits = sum(s.codec_context.bit_rate or 0 for s in source.container.streams.audio)
                started, count = time.perf_counter(), 0
                for count, frame in enumerate(source, 1):
                    writer.write(frame)
                    if count == WARM_UP:
                        started = time.perf_counter()
                    if count == most:
                        break
            seconds = (time.perf_counter() - started) / max(1, count - WARM_UP)
            with av.open(str(file)) as container:
                sizes = [(p.is_keyframe, p.size) for p in container.demux(video=0) if p.size]
    except PahsError:
        return None
    keys, others = ([size for key, size in sizes if key is kind] for kind in (True, False))
    if not keys:
        return None
    return Sample(
        key=sum(keys) / len(keys),
        other=sum(others or keys) / len(others or keys),
        copied=bits / 8 / float(info.rate),
        seconds=seconds,
    )
