"""A painted street, filmed by a shaking camera: a blurry video with its sharp frames, made from nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from pahs.data.gamma import to_display, to_light
from pahs.data.synthesis import Layers, expose

WIDTH, HEIGHT = 640, 360
SUB_FRAMES = 15
PAINTED = 2
"""Painted pixels per frame pixel, so that moving by fractions of a pixel does not soften the picture."""
GAMMA = 2.2
PAN, BUS = 2.0, 5.5
"""Pixels per frame that the camera turns along the street, and that the bus drives along it."""
font = ImageFont.load_default


def film(frames: int, width: int = WIDTH, height: int = HEIGHT) -> Iterator[tuple[Tensor, Tensor]]:
    """Blurry and sharp frames (3, H, W) of a hand-held camera that follows a bus along the street."""
    gamma = torch.tensor(GAMMA)
    street, bus = (
        torch.from_numpy(np.array(x)).permute(2, 0, 1).float() / 255 for x in (paint_street(), paint_bus())
    )
    street = to_light(street, gamma)
    bus = torch.cat([to_light(bus[:3], gamma) * bus[3:], bus[3:]])
    for t in range(frames):
        # The shutter stays open for the whole interval, as in the dark.
        times = t + torch.linspace(-0.5, 0.5, SUB_FRAMES)
        matrices = torch.stack([view(times, 0.0), view(times, BUS)])[:, None][None]
        average, middle = expose(Layers(street[None], bus[None, None], matrices), height, width)
        yield to_display(average[0, 0], gamma), to_display(middle[0, 0], gamma)


def view(times: Tensor, drive: float) -> Tensor:
    """(S, 3, 3) from frame pixels to painted pixels: a pan with the tremor of a hand; `drive` moves a layer along."""
    x = PAN * times - 50 + 7 * torch.sin(0.55 * times) + 2 * torch.sin(1.7 * times + 1)
    y = 4 * torch.sin(0.8 * times + 2) + 1.5 * torch.sin(2.1 * times)
    if drive:
        x, y = x - (drive - PAN) * times + 120, y - 105
    roll = 0.01 * torch.sin(0.6 * times)
    matrices = torch.zeros(len(times), 3, 3)
    matrices[:, 0, 0] = matrices[:, 1, 1] = PAINTED * torch.cos(roll)
    matrices[:, 0, 1], matrices[:, 1, 0] = -PAINTED * torch.sin(roll), PAINTED * torch.sin(roll)
    matrices[:, 0, 2], matrices[:, 1, 2], matrices[:, 2, 2] = PAINTED * x, PAINTED * y, 1
    return matrices


def paint_street(width: int = 2200, height: int = 1100) -> Image.Image:
    """Houses with windows, signs and a railing: edges in all directions, fine texture, and text to read."""
    rng = random.Random(4)
    picture = Image.new("RGB", (width, height))
    draw = ImageDraw.Draw(picture)
    for y in range(height):
        mix = y / height
        draw.line((0, y, width, y), (int(150 + 70 * mix), int(185 + 40 * mix), int(225 - 10 * mix)))
    left, ground = 0, int(0.78 * height)
    names = ["CAFE", "BOOKS", "HOTEL", "PHOTO", "OPTICS", "BAKERY", "MUSIC", "CINEMA"]
    while left < width:
        house = rng.randint(190, 330)
        top = rng.randint(int(0.1 * height), int(0.4 * height))
        wall = tuple(rng.randint(90, 220) for _ in range(3))
        draw.rectangle((left, top, left + house, ground), wall)
        for y in range(top, ground, 11):
            darker = tuple(int(0.86 * v) for v in wall)
            draw.line((left, y, left + house, y), darker)
            for x in range(left + (y // 11 % 2) * 12, left + house, 24):
                draw.line((x, y, x, min(y + 11, ground)), darker)
        for y in range(top + 26, ground - 190, 84):
            for x in range(left + 22, left + house - 56, 66):
                glass = rng.choice([(40, 50, 70), (70, 90, 120), (245, 225, 150)])
                draw.rectangle((x, y, x + 42, y + 56), glass, (240, 240, 235), 4)
                draw.line((x + 21, y, x + 21, y + 56), (240, 240, 235), 3)
                draw.line((x, y + 24, x + 42, y + 24), (240, 240, 235), 3)
        sign = (left + 14, ground - 160, left + house - 14, ground - 104)
        draw.rectangle(sign, tuple(rng.randint(10, 90) for _ in range(3)), (230, 210, 120), 4)
        name = names[rng.randrange(len(names))]
        middle = ((sign[0] + sign[2]) / 2, (sign[1] + sign[3]) / 2)
        draw.text(middle, name, (250, 240, 200), font(44), anchor="mm")
        draw.rectangle((left + 20, ground - 96, left + house - 20, ground), (35, 40, 48), (200, 200, 195), 4)
        left += house
    draw.rectangle((0, ground, width, height), (96, 96, 100))
    for x in range(0, width, 26):
        draw.line((x, ground - 36, x, ground + 26), (28, 30, 34), 5)
    draw.line((0, ground - 36, width, ground - 36), (28, 30, 34), 7)
    for _ in range(9000):
        x, y = rng.randrange(width), rng.randrange(ground, height)
        shade = rng.randint(70, 128)
        draw.ellipse((x, y, x + rng.randint(1, 5), y + rng.randint(1, 3)), (shade, shade, shade))
    for x in range(0, width, 150):
        draw.rectangle((x, ground + 120, x + 80, ground + 132), (235, 235, 225))
    return picture


def paint_bus(width: int = 620, height: int = 300) -> Image.Image:
    picture = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    draw = ImageDraw.Draw(picture)
    draw.rounded_rectangle((6, 10, width - 6, height - 40), 26, (190, 36, 42, 255), (90, 14, 18, 255), 5)
    for x in range(34, width - 110, 92):
        draw.rectangle((x, 42, x + 74, 118), (54, 72, 92, 255), (230, 230, 230, 255), 4)
    draw.rectangle((24, 140, width - 24, 196), (244, 236, 214, 255))
    draw.text((width / 2, 168), "RIVERSIDE  42", (150, 20, 26, 255), font(46), anchor="mm")
    for x in (120, width - 130):
        draw.ellipse((x - 44, height - 92, x + 44, height - 4), (24, 24, 26, 255), (120, 120, 124, 255), 10)
        for spoke in range(6):
            angle = math.pi * spoke / 3
            end = (x + 30 * math.cos(angle), height - 48 + 30 * math.sin(angle))
            draw.line((x, height - 48, *end), (150, 150, 154, 255), 4)
    return picture
