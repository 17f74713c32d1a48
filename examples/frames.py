"""Frames from a file of your own choice through `pahs.stream`, without writing a video.

    python examples/frames.py shaky.mp4

Prints how much sharper each frame became: the variance of a Laplacian, after over before.
"""

import sys
from collections.abc import Iterator

import av
import numpy as np

import pahs


def decoded(path: str) -> Iterator[np.ndarray]:
    with av.open(path) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="rgb24")


def detail(frame: np.ndarray) -> float:
    grey = frame.astype(float).mean(2)
    edges = 4 * grey[1:-1, 1:-1] - grey[:-2, 1:-1] - grey[2:, 1:-1] - grey[1:-1, :-2] - grey[1:-1, 2:]
    return float(edges.var())


def main(path: str) -> None:
    before: list[float] = []

    def watched() -> Iterator[np.ndarray]:
        for frame in decoded(path):
            before.append(detail(frame))
            yield frame

    # As each frame comes back its source has long been read: the stream looks ahead.
    for number, sharp in enumerate(pahs.stream(pahs.load("pahs-t"), watched())):
        print(f"frame {number}: {detail(sharp) / max(before[number], 1e-9):.2f} times the detail")


if __name__ == "__main__":
    main(sys.argv[1])
