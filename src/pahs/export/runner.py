"""Restore a video with the graphs in this folder. Needs numpy, onnxruntime and av; no PyTorch.

python restore.py blurry.mp4 sharp.mp4
"""

import json
import sys
from collections import deque
from pathlib import Path

import av
import numpy as np
import onnxruntime as ort
from av.video.reformatter import Interpolation

EXACT = Interpolation.BILINEAR | Interpolation.ACCURATE_RND
EXACT |= Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP


class Network:
    def __init__(self, folder, chunk=32):
        """`chunk` frames are restored by one backward sweep; memory holds those and the look-ahead."""
        about = json.loads((folder / "model.json").read_text())
        self.graphs = {graph["name"]: graph for graph in about["graphs"]}
        self.sessions = {
            name: ort.InferenceSession(folder / g["files"][0]["name"]) for name, g in self.graphs.items()
        }
        self.chunk, self.ahead, self.multiple = chunk, about["look_ahead"], about["multiple_of"]
        self.reach = {name: max(port["reach"] for port in g["inputs"]) for name, g in self.graphs.items()}

    def run(self, name, film, t, last, state=None):
        """One graph on frame t of the film; notes what it gives, and returns the next state."""
        graph, now = self.graphs[name], film[t]
        if state is None:
            state = {s["name"]: start(s, now) for s in graph["state"]}
        feed = dict(state)
        for port in graph["inputs"]:
            window = (min(max(k, 0), last) for k in range(t - port["reach"], t + port["reach"] + 1))
            feed[port["name"]] = np.concatenate([film[k][port["name"]] for k in window], 1)
        outputs = [port["name"] for port in graph["outputs"]]
        now.update(zip(outputs, self.sessions[name].run(outputs, feed), strict=True))
        return {s["name"]: now[s["next"]] for s in graph["state"]}

    def restore(self, frames):
        """Sharp frames for blurry ones, uint8 arrays (H, W, 3) of one size, in bounded memory."""
        source, over, film, state = iter(frames), False, {}, None
        seen = known = done = 0  # frames that were read, went through `forward`, and were restored
        while not over or done < seen:
            while not over and seen < done + self.chunk + self.ahead:
                frame = next(source, None)
                over = frame is None
                if not over:
                    below, right = (-side % self.multiple for side in frame.shape[:2])
                    image = np.pad(frame, ((0, below), (0, right), (0, 0)), "reflect")
                    film[seen] = {"frames": np.float32(image.transpose(2, 0, 1)[None]) / 255}
                    size, seen = frame.shape[:2], seen + 1
            while known < seen - (0 if over else self.reach["extract"]):
                self.run("extract", film, known, seen - 1)
                state = self.run("forward", film, known, seen - 1, state)
                known += 1
            back = None
            for t in range(seen - 1, done - 1, -1) if "backward" in self.graphs else ():
                back = self.run("backward", film, t, seen - 1, back)
            for t in range(done, min(done + self.chunk, seen)):
                if "reconstruct" in self.graphs:
                    self.run("reconstruct", film, t, known - 1)
                image = film[t]["restored"][0, :, : size[0], : size[1]]
                yield np.uint8(np.clip(image * 255, 0, 255).round().transpose(1, 2, 0))
                film.pop(t - 2 * max(self.reach.values()), None)
            done = min(done + self.chunk, seen)


def start(state, first):
    """The state before the first frame: zero, or made of that frame's tensors."""
    if state["start"]:
        return np.concatenate([first[name] for name in state["start"]], 1)
    height, width = (side // state["scale"] for side in first["frames"].shape[2:])
    return np.zeros((1, state["channels"], height, width), np.float32)


class Film:
    """The frames of a video; what was done to them is added to its own samples, so that nothing else changes."""

    def __init__(self, video):
        self.video, self.waiting = video, deque()
        self.layout = "yuv444p" if video.width % 2 or video.height % 2 else "yuv420p"

    def frames(self, source):
        for frame in source.decode(self.video):
            own = frame.reformat(format=self.layout, interpolation=EXACT)
            blurry = own.to_ndarray(format="rgb24", interpolation=EXACT)
            self.waiting.append((own.to_ndarray(), self.samples(blurry)))
            yield blurry

    def changed(self, sharp):
        own, blurry = self.waiting.popleft()
        change = np.subtract(self.samples(sharp), blurry, dtype=np.int16)
        return av.VideoFrame.from_ndarray(np.uint8(np.clip(own + change, 0, 255)), self.layout)

    def samples(self, picture):
        coded, frame = self.video.codec_context, av.VideoFrame.from_ndarray(picture)
        colour = {"dst_colorspace": coded.colorspace, "dst_color_range": coded.color_range}
        return frame.to_ndarray(format=self.layout, interpolation=EXACT, **colour)


if __name__ == "__main__":
    with av.open(sys.argv[1]) as source, av.open(sys.argv[2], "w") as target:
        video, options = source.streams.video[0], {"crf": "15", "preset": "veryfast"}
        film, stream = Film(video), target.add_stream("libx264", video.average_rate, options=options)
        stream.width, stream.height, stream.pix_fmt = video.width, video.height, film.layout
        for tag in ("colorspace", "color_range", "color_primaries", "color_trc"):
            setattr(stream.codec_context, tag, getattr(video.codec_context, tag))
        for sharp in Network(Path(__file__).parent).restore(film.frames(source)):
            target.mux(stream.encode(film.changed(sharp)))
        target.mux(stream.encode())
