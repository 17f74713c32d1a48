"""pahs as a VapourSynth function: `pahs.vapoursynth.deblur(clip)`."""

from pahs.vapoursynth.clip import deblur as deblur
