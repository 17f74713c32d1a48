"""Ray nodes for tests: each in a network namespace of its own, or all on this machine; ended by their process ids."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

NUMBER = os.getpid() % 250
"""Names and addresses of this process, so that two can rehearse at the same time."""
BRIDGE = f"pahsbr{NUMBER}"
GATEWAY = f"10.77.{NUMBER}.254"
STARTED = "Ray runtime started"


def descendants(pid: int) -> list[int]:
    """All processes below one, by the system's table."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@dataclass
class Node:
    """A node of a Ray cluster."""

    folder: Path
    process: subprocess.Popen[bytes]
    namespace: str | None = None

    def workers(self) -> list[int]:
        """Its processes that hold one of our actors."""
        found = []
        for pid in descendants(self.process.pid):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"ray::" in command and b"Worker" in command:
                    found.append(pid)
        return found

    def stop(self) -> None:
        """End all of its processes at once, as a machine that loses its power does."""
        pids = [*descendants(self.process.pid), self.process.pid]
        if self.namespace is not None:
            listed = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True)
            pids += [int(pid) for pid in listed.stdout.split()]
        kill(pids)
        self.process.wait()


@dataclass
class Cluster:
    """A head without workers, and nodes with one CPU core each."""

    folder: Path
    spaces: bool = False
    """Each node has a network namespace, joined by a bridge."""
    nodes: list[Node] = field(default_factory=list)
    address: str = ""
    _used: int = 0

    def __post_init__(self) -> None:
        self.token = self.folder / "token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        if self.spaces:
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")

    @property
    def environment(self) -> dict[str, str]:
        """What head, nodes and drivers have in common."""
        tests = str(Path(__file__).parent)
        return {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "10000",
            "RAY_health_check_failure_threshold": "5",
        }

    def start(self, cores: int = 1, **environment: str) -> Node:
        """Add a node; the first one is the head."""
        self._used += 1
        name = f"pahs{NUMBER}n{self._used}"
        # Paths of Unix sockets are short: not below a test's own folder.
        folder = Path(tempfile.mkdtemp(prefix="pr"))
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", str(cores)]
        words += ["--object-store-memory", "80000000", "--disable-usage-stats"]
        ip = "127.0.0.1"
        if self.spaces:
            ip = f"10.77.{NUMBER}.{self._used}"
            _namespace(name, ip)
            words = ["ip", "netns", "exec", name, *words]
        words += ["--node-ip-address", ip]
        if not self.nodes:
            port = free_port()
            self.address = f"{ip}:{port}"
            words += ["--head", "--port", str(port), "--include-dashboard", "false"]
            words += ["--temp-dir", str(folder), "--ray-client-server-port", str(free_port())]
        else:
            words += ["--address", self.address, "--temp-dir", str(folder)]
        log = (folder / "node.log").open("wb")
        process = subprocess.Popen(
            words, stdout=log, stderr=subprocess.STDOUT, env={**self.environment, **environment}
        )
        node = Node(folder, process, name if self.spaces else None)
        self.nodes.append(node)
        deadline = time.monotonic() + 90
        while STARTED not in (folder / "node.log").read_text():
            assert process.poll() is None and time.monotonic() < deadline, (folder / "node.log").read_text()
            time.sleep(0.2)
        return node

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
            shutil.rmtree(node.folder, ignore_errors=True)
        if self.spaces:
            for number in range(1, self._used + 1):
                # Without the first the kernel would remove the link some time after the namespace.
                for words in (
                    ["link", "del", f"vpahs{NUMBER}n{number}"],
                    ["netns", "del", f"pahs{NUMBER}n{number}"],
                ):
                    subprocess.run(["ip", *words], check=False, capture_output=True)
            _ip("link", "del", BRIDGE)


def remove_namespace(node: Node) -> None:
    """Cut a node off the network, then end it."""
    assert node.namespace is not None
    _ip("link", "del", f"v{node.namespace}")
    node.stop()
    _ip("netns", "del", node.namespace)


def _namespace(name: str, ip: str) -> None:
    _ip("netns", "add", name)
    _ip("link", "add", f"v{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", f"v{name}", "master", BRIDGE, "up")
    for words in (
        ("addr", "add", f"{ip}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
        ("route", "add", "default", "via", GATEWAY),
    ):
        _ip("netns", "exec", name, "ip", *words)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
