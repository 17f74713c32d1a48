"""Frames in, sharp frames out, in bounded memory: what every front end runs."""

from pahs.engine.stream import restore, stream

__all__ = ["restore", "stream"]
