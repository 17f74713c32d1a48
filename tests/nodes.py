"""Machines of a rehearsal: network namespaces where root and iproute2 allow them, else processes on the loopback.

    with machines(2) as (first, second):
        job = first.start("python", "-m", "torch.distributed.run", ...)
        second.kill()

Namespaces hang on a bridge in a namespace of its own, so that the network of this machine is not touched.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

NETWORK = "10.181.77"
"""Addresses of machines that have a namespace."""
MARK = "PAHS_REHEARSAL"
"""A variable in the environment of every process of a machine, by which they are found."""


@dataclass
class Machine:
    """One machine: processes that share an address."""

    name: str
    address: str
    namespace: bool
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *command: str, log: Path, **environment: str) -> subprocess.Popen[str]:
        """Start a command on this machine; its output goes to `log`."""
        inside = ["ip", "netns", "exec", self.name] if self.namespace else []
        interface = {"GLOO_SOCKET_IFNAME": "eth0" if self.namespace else "lo"}
        with log.open("a") as file:
            process = subprocess.Popen(
                [*inside, *command],
                env={**os.environ, "OMP_NUM_THREADS": "1", **interface, **environment, MARK: self.name},
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def processes(self) -> list[int]:
        """Every process of this machine, whoever started it."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    if f"{MARK}={self.name}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(int(folder.name))
        return found

    def kill(self, when: Callable[[], bool] = lambda: True) -> None:
        """SIGKILL for all of them at once, as when the power fails; the connections are closed."""
        left = self.processes()
        while not when():
            pass
        while left:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)
            left = self.processes()
        for started in self.started:
            started.wait()

    def unplug(self) -> None:
        """Nothing goes in or out any more, and nobody is told."""
        ip("-n", self.name, "link", "set", "eth0", "down")


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """So many machines that reach each other; all that runs on them ends with the block."""
    token = secrets.token_hex(3)
    namespaces = allowed()
    hub = f"pahs-{token}-hub"
    made = [
        Machine(f"pahs-{token}-{n}", f"{NETWORK}.{n + 1}" if namespaces else "127.0.0.1", namespaces)
        for n in range(count)
    ]
    try:
        if namespaces:
            wire(hub, made)
        yield made
    finally:
        for machine in made:
            machine.kill()
        if namespaces:
            for name in (*(machine.name for machine in made), hub):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def wire(hub: str, made: list[Machine]) -> None:
    ip("netns", "add", hub)
    ip("-n", hub, "link", "add", "bridge0", "type", "bridge")
    ip("-n", hub, "link", "set", "bridge0", "up")
    for number, machine in enumerate(made):
        ip("netns", "add", machine.name)
        ip("-n", machine.name, "link", "set", "lo", "up")
        peer = ["peer", "name", f"port{number}", "netns", hub]
        ip("-n", machine.name, "link", "add", "eth0", "type", "veth", *peer)
        ip("-n", hub, "link", "set", f"port{number}", "master", "bridge0", "up")
        ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
        ip("-n", machine.name, "link", "set", "eth0", "up")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def allowed() -> bool:
    """Whether namespaces with links between them can be made here."""
    if os.geteuid() or shutil.which("ip") is None:
        return False
    name = f"pahs-{secrets.token_hex(3)}"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "bridge0", "type", "bridge")
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        return True
    except subprocess.CalledProcessError:
        return False
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
