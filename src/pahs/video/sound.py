"""Sound that no container of ours can hold as it is, encoded again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from av import AudioCodecContext, AudioStream, Packet
    from av.container import OutputContainer
    from av.stream import Stream

_ENCODERS = {"matroska": "flac", "nut": "flac", "webm": "libopus", "ogg": "flac"}
_BIT_RATE = 160_000
"""Bits per second and channel for encoders that lose something: more than a listener can tell."""


class SoundEncoder:
    """One stream of sound on its way from its decoder into an encoder of the output."""

    def __init__(self, container: OutputContainer, source: AudioStream) -> None:
        import av

        context = source.codec_context
        self.codec = _ENCODERS.get(container.format.name, "aac")
        rate, known = context.sample_rate, av.Codec(self.codec, "w").audio_rates
        if known and rate not in known:
            rate = min((r for r in known if r > rate), default=max(known))
        self.target = cast("AudioStream", container.add_stream(self.codec, rate=rate))
        self.target.layout = _layout(context, self.codec)
        if self.codec != "flac":
            self.target.bit_rate = _BIT_RATE * self.target.layout.nb_channels
        self._source = source
        # The trial before the work has used the same decoder.
        context.flush_buffers()

    def put(self, packet: Packet[Stream] | None) -> list[Packet[Stream]]:
        """The packets of the new stream that are ready; what does not decode is left out."""
        import av

        try:
            frames = self._source.decode(cast("Packet[AudioStream] | None", packet))
            return [p for frame in frames for p in self.target.encode(frame)]
        except (av.FFmpegError, ValueError):
            return []

    def finish(self) -> list[Packet[Stream]]:
        return [*self.put(None), *self.target.encode(None)]


def can_decode(source: AudioStream) -> bool:
    """Whether the file says enough about its sound; one that is cut off may not."""
    context = source.codec_context
    return context is not None and context.sample_rate > 0 and context.layout.nb_channels > 0


def _layout(context: AudioCodecContext, codec: str) -> str:
    import av

    count, name = context.layout.nb_channels, context.layout.name
    if codec == "flac" and count <= 8:
        with suppress(ValueError):
            return str(av.AudioLayout(name).name)
    return "mono" if count == 1 else "stereo"
