"""Damage of the kinds that disks, networks and malice do; the same for the same number."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from .seeds import IMAGES, VIDEOS

EXTREMES = (
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\x01",
    b"\xff\xff\xff\x7f",
)


@dataclass(frozen=True)
class Mutant:
    """A damaged seed."""

    number: int
    name: str
    """Of its file or folder."""
    damage: tuple[str, ...]
    """What was done to it, in order."""
    files: tuple[bytes, ...]

    def write(self, folder: Path) -> Path:
        """Write it into an empty folder."""
        path = folder / self.name
        if self.name in VIDEOS:
            path.write_bytes(self.files[0])
            return path
        path = path.with_suffix("")
        path.mkdir()
        for index, data in enumerate(self.files):
            (path / f"{index:03d}{Path(self.name).suffix}").write_bytes(data)
        return path


def mutant(seeds: dict[str, list[bytes]], run: int, number: int) -> Mutant:
    """Mutant `number` of run `run`."""
    rng = random.Random(f"{run} {number}")
    name = list(seeds)[number % len(seeds)]
    files, damage = list(seeds[name]), []
    other = rng.choice(seeds[rng.choice(list(seeds))])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(files))
        change = rng.choice(CHANGES)
        files[at] = change(rng, files[at], other)
        damage.append(change.__name__.strip("_"))
    if name in IMAGES and rng.random() < 0.2:
        files[0], damage = other, [*damage, "foreign_file"]
    return Mutant(number, name, tuple(damage), tuple(files))


def _place(rng: random.Random, data: bytes) -> int:
    """Half of the damage hits the headers at the start or end."""
    near = min(1500, len(data))
    return rng.choice((rng.randrange(near), len(data) - 1 - rng.randrange(near), rng.randrange(len(data))))


def _flip_bits(rng: random.Random, data: bytes, other: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(rng.choice((1, 2, 5, 20, 100))):
        result[_place(rng, data)] ^= 1 << rng.randrange(8)
    return bytes(result)


def _set_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(rng.choice((1, 3, 10))):
        result[_place(rng, data)] = rng.randrange(256)
    return bytes(result)


def _set_extremes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        at = _place(rng, data)
        result[at : at + 4] = rng.choice(EXTREMES)
    return bytes(result)


def _cut(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(1, len(data))] if rng.random() < 0.8 else data[rng.randrange(len(data) - 1) :]


def _zero_block(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start, size = _place(rng, data), rng.choice((16, 512, 4096))
    return data[:start] + bytes(len(data[start : start + size])) + data[start + size :]


def _drop_block(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start = _place(rng, data)
    return (data[:start] + data[start + rng.choice((1, 4, 188, 2000)) :]) or b"\0"


def _repeat_block(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start = _place(rng, data)
    block = data[start : start + rng.choice((1, 8, 188, 4000))]
    return data[:start] + block * rng.choice((2, 3, 20)) + data[start:]


def _swap_blocks(rng: random.Random, data: bytes, other: bytes) -> bytes:
    a, b, c = sorted(rng.randrange(len(data)) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(1, len(data))] + other[rng.randrange(len(other)) :]


def _append_itself(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data + data[rng.choice((0, 0, rng.randrange(len(data)))) :]


def _append_other(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data + other


def _replace_by_other(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return other


CHANGES = (
    _flip_bits, _flip_bits, _set_bytes, _set_bytes, _set_extremes, _set_extremes, _cut, _zero_block, _drop_block,
    _repeat_block, _swap_blocks, _splice, _append_itself, _append_other, _replace_by_other,
)  # fmt: skip
