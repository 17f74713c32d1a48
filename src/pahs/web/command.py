"""The command line of `pahs serve`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pahs.errors import PahsError
from pahs.web.settings import Limits, Settings


def serve(
    *,
    host: Annotated[
        str, Parameter(help="Address to listen on. Others than this machine's own need the token.")
    ] = Settings.host,
    port: Annotated[int, Parameter(help="0 takes a free one.")] = Settings.port,
    folder: Annotated[
        Path | None, Parameter(help="Keeps the queue, the uploads and the results.", show_default=False)
    ] = None,
    token: Annotated[
        str | None,
        Parameter(
            env_var="PAHS_TOKEN",
            help="Who knows it may use the server; made where --host or --name needs one.",
        ),
    ] = None,
    name: Annotated[
        tuple[str, ...],
        Parameter(help="Another host name that browsers reach the server by; needs the token. Repeatable."),
    ] = (),
    device: Annotated[
        tuple[str, ...],
        Parameter(help="auto, cpu, cuda, xpu, mps or cuda:1; repeat it for several workers."),
    ] = Settings.devices,
    model: Annotated[
        tuple[Path, ...], Parameter(help="A .safetensors file to offer as well. Repeatable.")
    ] = (),
    max_gib: Annotated[float, Parameter(help="Largest upload.")] = Limits.upload_bytes / 2**30,
    max_minutes: Annotated[float, Parameter(help="Longest video.")] = Limits.seconds / 60,
    max_jobs: Annotated[int, Parameter(help="Jobs in the list, finished ones included.")] = Limits.jobs,
    keep_free: Annotated[float, Parameter(help="GiB of the disk to leave free.")] = Limits.spare_bytes
    / 2**30,
    memory: Annotated[
        float | None, Parameter(help="GiB of memory that a job may take on a CPU; all by default.")
    ] = None,
    browser: Annotated[bool, Parameter(help="Open the page.")] = True,
) -> None:
    """Open a web page that deblurs videos: drop them, watch, compare, download.

    It listens on this machine only, unless --host says otherwise; docs/web.md describes its HTTP API.
    """
    from pahs.web.serve import default_folder
    from pahs.web.serve import serve as run

    numbers = {"max-gib": max_gib, "max-minutes": max_minutes, "max-jobs": max_jobs, "memory": memory}
    for option, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise PahsError(f"--{option} {number:g}: give a number above 0")
    if not 0 <= keep_free < math.inf:
        raise PahsError(f"--keep-free {keep_free:g}: give 0 or more GiB")
    limits = Limits(
        upload_bytes=round(max_gib * 2**30),
        jobs=max_jobs,
        seconds=max_minutes * 60,
        spare_bytes=round(keep_free * 2**30),
        job_bytes=round(memory * 2**30) if memory else None,
    )
    place = (folder or default_folder()).absolute()
    run(Settings(place, host, port, token, name, device, model, limits), browser)
