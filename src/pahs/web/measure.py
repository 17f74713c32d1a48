"""The process that finds out how fast each model is on this machine, once, when somebody opens the page."""

from __future__ import annotations

import sys
import time

from pahs.errors import PahsError
from pahs.web.child import ChildConfig, end_with_parent
from pahs.web.queue import Queue

_SIZE = 640, 360


def main(config: ChildConfig) -> None:
    end_with_parent()
    from pahs.backends.load import load
    from pahs.deblur import DeblurOptions
    from pahs.runtime.device import choose_device
    from pahs.runtime.load import default_model
    from pahs.runtime.speed import speed

    queue = Queue(config.settings.queue_file)
    width, height = _SIZE
    default = default_model(choose_device(config.device))
    for name, source in config.settings.models().items():
        if name == "auto":
            continue
        while queue.jobs("running"):  # jobs come first, and would spoil the measurement
            time.sleep(1)
        try:
            known = speed(load(source, config.device, backend=DeblurOptions.backend), width, height)
        except PahsError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        for each in (name, "auto") if name == default else (name,):
            queue.measured(each, known.frames_per_second * width * height)


if __name__ == "__main__":
    main(ChildConfig.parse(sys.argv[1]))
