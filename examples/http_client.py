"""A video to a running `pahs serve` and its result back, with the standard library alone.

python examples/http_client.py http://localhost:8765 shaky.mp4 sharp.mp4 [TOKEN]
"""

import json
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen


def main(server: str, source: Path, target: Path, token: str = "") -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(path: str, method: str = "GET", body: bytes | None = None):
        return urlopen(Request(f"{server}{path}", body, headers, method=method))

    job = json.load(ask(f"/api/jobs?name={quote(source.name)}&model=pahs-t", "PUT", source.read_bytes()))
    while job["state"] not in ("done", "failed", "cancelled"):
        time.sleep(0.5)
        job = json.load(ask(f"/api/jobs/{job['id']}"))
        print(f"{job['state']} {job['progress']:.0%}", flush=True)
    if job["state"] != "done":
        sys.exit(f"{source}: {job['error']}")
    with ask(f"/api/jobs/{job['id']}/result") as answer, target.open("wb") as file:
        shutil.copyfileobj(answer, file)
    print(target)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
