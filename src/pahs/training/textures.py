"""Drawn pictures with the statistics that deblurring learns from: edges at every scale, corners, lines, print.

They stand in for photos where there are none: in tests, in demonstrations, and in `recipes/debug.toml`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SUPERSAMPLING = 2
"""Shapes are drawn larger and shrunk, so that their edges are not jagged."""


def draw_textures(count: int, size: int = 288, seed: int = 0) -> list[Image.Image]:
    """RGB pictures of `size` x `size`; picture i depends on (seed, i) alone."""
    kinds = (_dead_leaves, _polygons, _gratings, _print)
    return [kinds[i % len(kinds)](np.random.default_rng((seed, i)), size) for i in range(count)]


def _dead_leaves(random: np.random.Generator, size: int) -> Image.Image:
    """Discs that hide each other, small ones most: the occlusions and the spectrum of natural scenes."""
    image, draw, side = _canvas(random, size)
    for _ in range(400):
        radius = side * 0.015 / random.uniform(0.06, 1)
        x, y = random.uniform(0, side, 2)
        box = (x - radius, y - radius, x + radius, y + radius)
        shape = draw.ellipse if random.uniform() < 0.6 else draw.rectangle
        shape(box, fill=_colour(random))
    return _finished(image, random, size)


def _polygons(random: np.random.Generator, size: int) -> Image.Image:
    image, draw, side = _canvas(random, size)
    for _ in range(120):
        corners = random.integers(3, 7)
        angles = np.sort(random.uniform(0, 2 * np.pi, corners))
        radius = side * random.uniform(0.02, 0.2)
        centre = random.uniform(0, side, 2)
        points = centre + radius * np.stack([np.cos(angles), np.sin(angles)], 1)
        draw.polygon([(float(x), float(y)) for x, y in points], fill=_colour(random), outline=_colour(random))
    return _finished(image, random, size)


def _gratings(random: np.random.Generator, size: int) -> Image.Image:
    """Patches of stripes and checks in every direction and pitch."""
    rows, columns = np.mgrid[:size, :size].astype(np.float32)
    picture = np.full((size, size, 3), random.uniform(60, 200, 3), np.float32)
    for _ in range(14):
        angle, period = random.uniform(0, np.pi), random.uniform(4, 40)
        across = np.cos(angle) * columns + np.sin(angle) * rows
        along = np.cos(angle) * rows - np.sin(angle) * columns
        wave = np.sin(2 * np.pi * across / period)
        if random.uniform() < 0.4:
            wave = wave * np.sin(2 * np.pi * along / period)
        if random.uniform() < 0.7:
            wave = np.clip(period * wave, -1, 1)
        top, left = random.integers(-size // 4, size, 2)
        height, width = random.integers(size // 6, size // 2, 2)
        patch = np.s_[max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
        low, high = random.uniform(0, 255, (2, 3))
        picture[patch] = low + (high - low) * (wave[patch][..., None] + 1) / 2
    return _with_grain(picture, random)


def _print(random: np.random.Generator, size: int) -> Image.Image:
    """Lines of small strokes on a calm ground: signs and text."""
    image, draw, side = _canvas(random, size)
    y = 0.0
    while y < side:
        height = side * random.uniform(0.02, 0.09)
        ink = _colour(random)
        x = random.uniform(0, height)
        while x < side:
            strokes = int(random.integers(2, 5))
            ends = random.uniform(0, 1, (strokes, 4)) * height
            for x0, y0, x1, y1 in ends:
                draw.line(
                    (x + x0 * 0.7, y + y0, x + x1 * 0.7, y + y1), fill=ink, width=max(1, int(height / 8))
                )
            x += height * random.choice([0.8, 0.8, 0.8, 1.6])
        y += height * 1.4
    return _finished(image, random, size)


def _canvas(random: np.random.Generator, size: int) -> tuple[Image.Image, ImageDraw.ImageDraw, int]:
    side = size * SUPERSAMPLING
    image = Image.new("RGB", (side, side), _colour(random))
    return image, ImageDraw.Draw(image), side


def _colour(random: np.random.Generator) -> tuple[int, int, int]:
    grey = random.uniform(15, 240)
    red, green, blue = np.clip(grey + random.normal(0, 30, 3), 0, 255)
    return int(red), int(green), int(blue)


def _finished(image: Image.Image, random: np.random.Generator, size: int) -> Image.Image:
    small = image.resize((size, size), Image.Resampling.BICUBIC)
    return _with_grain(np.asarray(small, np.float32), random)


def _with_grain(picture: NDArray[np.float32], random: np.random.Generator) -> Image.Image:
    """Fine grain in the surfaces, so that nothing is perfectly flat."""
    grain = random.normal(0, random.uniform(1, 6), picture.shape[:2])[..., None]
    return Image.fromarray(np.clip(picture + grain, 0, 255).astype(np.uint8))
