"""Names that several commands let the user choose from, each written once, and the check of such a choice."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pahs.errors import PahsError

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
Codec = Literal["auto", "h264", "hevc", "vp9", "ffv1"]
EncoderSpeed = Literal[
    "ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow"
]
Layout = Literal["gopro", "dvd", "reds", "bsd", "pairs"]
"""How a dataset's folder is arranged."""
AnyLayout = Literal["auto", Layout]
Split = Literal["train", "test", "valid"]
Kind = Literal["blur", "blur_gamma"]
"""Which of GOPRO's two blurry versions."""


def check_choice(option: str, value: str, choices: Any) -> None:
    """Refuse a value that the Literal `choices` does not name."""
    known = get_args(choices)
    if value not in known:
        raise PahsError(f"{option} {value!r} is unknown; choose one of {', '.join(known)}")
