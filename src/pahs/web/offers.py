"""The models that the page offers, in words for people, with their measured quality and their speed here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from pahs.web.queue import Queue
from pahs.web.settings import Settings


@dataclass(frozen=True)
class Offer:
    """One choice of a model."""

    name: str
    title: str
    about: str
    gain: float | None = None
    """Decibels of PSNR over the blurry frames of REDS, as the README's table has them."""
    pixels_per_second: float | None = None
    """Measured here by the jobs that ran; None before the first."""


_KNOWN = {
    offer.name: offer
    for offer in (
        Offer("auto", "Automatic", "Fast on a processor, Balanced on a graphics card"),
        Offer("pahs-t", "Fast", "The smallest network, made for processors", 2.61),
        Offer("pahs-s", "Balanced", "Sharper, and four times the work", 3.27),
        Offer("pahs", "Best", "The network of the paper; needs a graphics card to be quick", 3.47),
    )
}


def offers(settings: Settings, queue: Queue) -> list[dict[str, Any]]:
    """All models that a job may name, as JSON, the quick ones first."""
    speeds, named = queue.speeds(), settings.models()
    names = [name for name in _KNOWN if name in named] + [name for name in named if name not in _KNOWN]
    return [
        asdict(
            replace(
                _KNOWN.get(name, Offer(name, name, "Your own weights")), pixels_per_second=speeds.get(name)
            )
        )
        for name in names
    ]
