"""A batch whose network sleeps instead of computing: python batch_driver.py INPUT OUTPUT --on ADDRESS"""

from __future__ import annotations

import json
import sys

from batch_workers import SleepingWorker
from pahs.cluster.batch import run_batch
from pahs.cluster.planning import list_videos, make_settings
from pahs.cluster.pool import connected
from pahs.deblur import DeblurOptions


def main(source: str, output: str, address: str) -> None:
    settings = make_settings("pahs-t", DeblurOptions(precision="fp32", device="cpu"), 0)
    with connected(address):
        report = run_batch(list_videos([source], output), settings, cores=1, worker=SleepingWorker)
    assert not report.failures, report.failures[0]
    busy = sum(outcome.seconds for outcome in report.outcomes)
    print(json.dumps({"seconds": report.seconds - report.waited, "workers": report.workers, "busy": busy}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[4])
