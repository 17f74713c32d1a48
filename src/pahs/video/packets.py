"""Encoded pictures between two processes: a file of packets, exactly as the encoder gave them.

No container keeps them so: Matroska rounds times to milliseconds, MP4 and NUT take few codecs or drop durations. The
file is a ZIP archive without compression: the packets one after the other, then an index of their times. A file that
is cut off has no index, and a damaged packet has a wrong checksum.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from pahs import configs
from pahs.errors import PahsError

if TYPE_CHECKING:
    from av import Packet
    from av.stream import Stream

_PACKETS, _INDEX = "packets", "index.json"


@dataclass(frozen=True)
class PacketFacts:
    """All of a packet but its payload; times in units of the index's time base."""

    size: int
    pts: int
    dts: int | None
    duration: int
    key: bool


@dataclass(frozen=True)
class Index:
    """What is in a file of packets."""

    encoder: str
    """FFmpeg's name of it."""
    header: str
    """What the encoder says once for all its packets (extradata), in hexadecimal digits."""
    time_base: tuple[int, int]
    packets: tuple[PacketFacts, ...]
    warnings: tuple[str, ...] = ()
    """What could not be kept of the pictures, each in one line."""

    @property
    def unit(self) -> Fraction:
        return Fraction(*self.time_base)


class PacketFile:
    """A file of packets that is being written."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED)
        self._payload = self._archive.open(_PACKETS, "w", force_zip64=True)
        self._packets: list[PacketFacts] = []

    def put(self, packet: Packet[Stream]) -> None:
        if packet.pts is None:
            raise PahsError("the encoder gave a packet without a time; choose another --codec")
        self._payload.write(bytes(packet))
        facts = PacketFacts(
            packet.size, packet.pts, packet.dts, packet.duration or 0, bool(packet.is_keyframe)
        )
        self._packets.append(facts)

    def finish(self, encoder: str, header: bytes, time_base: Fraction, warnings: list[str]) -> None:
        self._payload.close()
        unit = (time_base.numerator, time_base.denominator)
        index = Index(encoder, header.hex(), unit, tuple(self._packets), tuple(warnings))
        self._archive.writestr(_INDEX, json.dumps(asdict(index)))
        self._archive.close()

    def abandon(self) -> None:
        """Let go of a file that nobody wants."""
        self._payload.close()
        self._archive.close()


def read_index(path: Path) -> Index:
    """What is in a file of packets."""
    try:
        with zipfile.ZipFile(path) as archive:
            return configs.build(Index, json.loads(archive.read(_INDEX)))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from None


def read_packets(path: Path, index: Index) -> Iterator[Packet[Stream]]:
    """The packets of a file, in the order of the encoder."""
    import av

    try:
        with zipfile.ZipFile(path) as archive, archive.open(_PACKETS) as payload:
            for facts in index.packets:
                packet: Packet[Stream] = av.Packet(payload.read(facts.size))
                packet.pts, packet.dts, packet.duration = facts.pts, facts.dts, facts.duration
                packet.time_base, packet.is_keyframe = index.unit, facts.key
                yield packet
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> PahsError:
    return PahsError(f"{path}: is no whole segment ({error}); remove it and run the segment again")
