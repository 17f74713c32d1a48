"""pahs: turn a blurry video into a sharp one.

    import pahs
    pahs.deblur("shaky.mp4", "sharp.mp4")
    pahs.deblur("shaky.mp4", options=pahs.DeblurOptions(look_ahead=10), model="pahs-t")

    model = pahs.load("pahs-t")
    for frame in pahs.stream(model, frames): ...

`import pahs` is light: PyTorch and FFmpeg are loaded when they are first needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# A submodule of the same name would replace this function if it were imported later.
from pahs.choices import EncodeOptions as EncodeOptions
from pahs.deblur import DeblurOptions as DeblurOptions
from pahs.deblur import deblur as deblur
from pahs.errors import PahsError as PahsError
from pahs.errors import Stopped as Stopped

if TYPE_CHECKING:
    from pahs.backends.load import load
    from pahs.engine import stream
    from pahs.runtime.catalog import models

__version__ = "0.1.0"
__all__ = [
    "DeblurOptions",
    "EncodeOptions",
    "PahsError",
    "Stopped",
    "__version__",
    "deblur",
    "load",
    "models",
    "stream",
]

_HOMES = {"load": "pahs.backends.load", "models": "pahs.runtime.catalog", "stream": "pahs.engine"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pahs' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
