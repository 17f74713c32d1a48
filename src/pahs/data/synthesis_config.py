"""The ranges that synthesised blur is drawn from."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pahs.errors import PahsError

Range = tuple[float, float]


@dataclass(frozen=True)
class SynthesisConfig:
    """Ranges of blur synthesised from photos. Lengths are in pixels of the frame, times in frame intervals."""

    frames: int = 6
    """Frames of a clip."""
    height: int = 192
    """Height of a frame."""
    width: int = 192
    """Width of a frame."""
    sub_frames: int = 15
    """Moments averaged per exposure; odd, so that the middle one is the sharp frame."""
    fewest_sub_frames: int = 0
    """Fewest moments of a clip, odd, when the number varies from clip to clip up to `sub_frames`: where few frames of
    a fast camera were averaged, fast motion leaves separate copies. 0: always `sub_frames`."""

    duty: Range = (0.3, 1.0)
    """Share of the frame interval during which the shutter is open, drawn more often near the upper end."""
    open_share: float = 0.0
    """Share of clips whose shutter never closes, like those of datasets averaged from every frame of a fast camera."""
    speed: Range = (2.0, 40.0)
    """Root mean square speed of the camera's picture per frame, drawn evenly in the logarithm."""
    still_share: float = 0.08
    """Share of clips in which everything moves at a twentieth of its drawn speed."""
    shake: Range = (0.0, 1.0)
    """Share of the motion's energy that oscillates; the rest drifts steadily."""
    frequency: Range = (0.05, 0.45)
    """Cycles per frame of the oscillation; above one half a path reverses within one exposure."""
    rotation: float = 0.02
    """Largest speed of roll, radians per frame."""
    zoom: float = 0.02
    """Largest speed of zoom, in the logarithm of size per frame."""
    perspective: float = 0.01
    """Largest speed of the change of depth between a frame's middle and its edge, per frame."""
    tilt: float = 0.12
    """Largest standing slant of a surface: depth at the frame's edge differs by so much from the middle's."""

    objects: tuple[int, int] = (0, 3)
    """Fewest and most foreground objects of a clip."""
    object_speed: Range = (0.5, 30.0)
    """Speed of an object per frame, on top of the camera's."""
    object_size: Range = (0.08, 0.4)
    """Radius of an object as a share of the frame's longer side."""
    parallax: Range = (0.6, 1.6)
    """How much faster than the background an object moves when the camera does."""
    followed_share: float = 0.15
    """Share of objects that the camera follows: they stand while the background moves."""

    scale: Range = (0.4, 1.5)
    """Size of a texture relative to its photo, drawn evenly in the logarithm."""
    candidates: int = 2
    """Windows looked at for each texture; the one with most detail is used, for a clear sky teaches nothing."""
    brightness: Range = (0.6, 1.2)
    """Factor on a texture's values."""
    contrast: Range = (0.8, 1.2)
    """Factor on a texture's distance from mid grey."""
    tint: float = 0.06
    """Largest relative change of a single colour channel."""

    linear_share: float = 0.5
    """Share of clips averaged as light; the others are averaged as stored values."""
    gamma: Range = (1.8, 2.4)
    """Exponent of the curve between the two."""
    srgb_share: float = 0.3
    """Share of the clips averaged as light that use the sRGB curve instead of a power law."""
    highlight_share: float = 0.25
    """Share of clips with lights brighter than white, which leave clipped streaks."""
    highlight_gain: Range = (0.5, 4.0)
    """By how many times white is exceeded in those clips."""

    noise_share: float = 0.4
    """Share of clips with sensor noise."""
    shot_noise: Range = (1e-4, 2e-3)
    """Variance of the noise per unit of light, drawn evenly in the logarithm."""
    read_noise: Range = (5e-4, 3e-3)
    """Standard deviation of the noise in the dark, drawn evenly in the logarithm."""
    codec_share: float = 0.35
    """Share of clips with the loss of a codec."""
    codec_quality: Range = (35.0, 95.0)
    """Quality of the codec, as in JPEG."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list | tuple):
                if len(value) != 2 or value[0] > value[1]:
                    raise PahsError(f"synthesis {field.name}: give (low, high) with low <= high, not {value}")
                object.__setattr__(self, field.name, tuple(value))
            low = value[0] if isinstance(value, list | tuple) else value
            if low < 0:
                raise PahsError(f"synthesis {field.name}: must not be negative, got {value}")
            if field.name.endswith("_share") and value > 1:
                raise PahsError(f"synthesis {field.name}: is a share between 0 and 1, got {value}")
        for name in ("speed", "object_speed", "frequency", "scale", "gamma", "shot_noise", "read_noise"):
            if getattr(self, name)[0] <= 0:
                raise PahsError(f"synthesis {name}: must be above 0, got {getattr(self, name)}")
        if self.frames < 1:
            raise PahsError(f"synthesis frames: must be at least 1, got {self.frames}")
        if self.candidates < 1:
            raise PahsError(f"synthesis candidates: must be at least 1, got {self.candidates}")
        if min(self.height, self.width) < 8:
            raise PahsError(f"synthesis height and width: must be at least 8, got {self.height}x{self.width}")
        if self.sub_frames % 2 == 0:
            raise PahsError(f"synthesis sub_frames: must be odd, got {self.sub_frames}")
        if self.fewest_sub_frames and not (
            self.fewest_sub_frames % 2 and self.fewest_sub_frames <= self.sub_frames
        ):
            raise PahsError(
                f"synthesis fewest_sub_frames: must be odd and at most sub_frames = {self.sub_frames}, "
                f"got {self.fewest_sub_frames}"
            )
        if self.duty[1] > 1 or self.shake[1] > 1:
            raise PahsError(f"synthesis duty and shake: must not exceed 1, got {self.duty} and {self.shake}")
        if self.object_size[1] > 0.5:
            raise PahsError(f"synthesis object_size: must not exceed 0.5, got {self.object_size}")
        if self.tilt + self.perspective * self.frames > 0.6:
            raise PahsError(f"synthesis tilt, perspective: too steep for {self.frames} frames; lower either")
        if not 1 <= self.codec_quality[0] <= self.codec_quality[1] <= 100:
            raise PahsError(f"synthesis codec_quality: must be within 1 and 100, got {self.codec_quality}")
