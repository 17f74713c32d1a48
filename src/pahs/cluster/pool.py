"""The workers of a batch: Ray actors, one for each GPU of the cluster, or for some CPU cores where there is none."""

from __future__ import annotations

import os
import secrets
import socket
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pahs.cluster import store
from pahs.cluster.manifest import Segment, Settings, Video
from pahs.cluster.work import Done, Runner
from pahs.errors import PahsError
from pahs.progress import Advance

Result = TypeVar("Result")

CORES = 4
"""CPU cores of a worker where there is no GPU."""
REFRESH_SECONDS = 1.0
"""How often the cluster's nodes are looked at: new ones get workers, dead workers are replaced."""
CONNECT_SECONDS = 10
STARTS = 10
"""A node where so many workers in a row die before they are ready gets no more work."""
BLAMES = 2
"""A node that fails so often with what another node can do gets no more work."""


@dataclass(frozen=True)
class Failed:
    """A worker could not do a unit."""

    error: str
    """One line."""
    details: str = ""
    """The traceback of a defect."""


class Counting(Runner):
    """Tells another thread how many frames of the present unit are done."""

    now = Advance()

    def advance(self) -> Advance:
        self.now = Advance()
        return self.now


class Worker:
    """What runs in an actor: it keeps its network loaded, and does one unit at a time."""

    def __init__(self, settings: Settings) -> None:
        self.runner = self.make_runner(settings)

    def make_runner(self, settings: Settings) -> Counting:
        return Counting(settings)

    def ready(self) -> Failed | None:
        """Load the network, and remove what a killed worker left on this machine."""

        def prepare() -> None:
            store.tidy()
            self.runner.network()

        return self._tried(prepare)

    def do(self, kind: str, video: Video, segment: Segment | None) -> Done | Failed:
        runner = self.runner
        if kind == "join":
            return self._tried(lambda: runner.join(video))
        if segment is not None:
            return self._tried(lambda: runner.segment(video, segment))
        return self._tried(lambda: runner.start(video))

    def progress(self) -> int:
        """Frames of the present unit that are done."""
        return self.runner.now.progress.done

    def close(self) -> None:
        """Give back what lies on this machine."""
        self.runner.close()

    def _tried(self, work: Callable[[], Result]) -> Result | Failed:
        try:
            return work()
        except PahsError as error:
            return Failed(str(error))
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            return Failed(
                f"an unexpected error in pahs: {type(error).__name__}: {reason}", traceback.format_exc()
            )


@dataclass
class Member:
    """A worker as the driver sees it."""

    actor: Any
    node: str
    """Ray's identifier of its node."""
    starting: Any
    """The answer to `ready` that is waited for; None once it came."""
    task: Any = None
    answer: Any = None
    """The result that is waited for."""
    progress: Any = None
    """The number of frames that is waited for."""
    frames: int = 0


class Pool:
    """Workers on all nodes that Ray knows; nodes may come and go."""

    def __init__(self, settings: Settings, cores: int = CORES, worker: type[Worker] = Worker) -> None:
        self.members: list[Member] = []
        self.retired: dict[str, str] = {}
        """Nodes that get no more work, and why."""
        self.failed_starts: Counter[str] = Counter()
        """Workers of each node that died before they were ready, one after the other."""
        self.most = 0
        """Workers that were ready at the same time."""
        self.settings, self._cores, self._worker = settings, cores, worker
        self._looked = 0.0

    @property
    def nodes(self) -> set[str]:
        """Nodes with a worker, also one that is not ready yet."""
        return {member.node for member in self.members}

    def refresh(self) -> None:
        """Start workers where there is room for them, and forget those of nodes that get no more work."""
        if time.monotonic() - self._looked < REFRESH_SECONDS:
            return
        self._looked = time.monotonic()
        self.most = max(self.most, sum(member.starting is None for member in self.members))
        for node, (count, resources) in self.able().items():
            if node not in self.retired:
                there = sum(member.node == node for member in self.members)
                self.members += [self._start(node, resources) for _ in range(count - there)]

    def able(self) -> dict[str, tuple[int, dict[str, float]]]:
        """Nodes with room for workers: how many, and what Ray reserves for each. A head may have none."""
        import ray

        rooms = {node["NodeID"]: self._room(node["Resources"]) for node in ray.nodes() if node["Alive"]}
        return {node: room for node, room in rooms.items() if room[0]}

    def retire(self, node: str, why: str) -> None:
        """Give no more work to a node."""
        self.retired[node] = why
        for member in [member for member in self.members if member.node == node and member.task is None]:
            self.remove(member)

    def remove(self, member: Member) -> None:
        import ray

        if member in self.members:
            self.members.remove(member)
            with suppress(Exception):  # it may be dead, and so may its node
                ray.kill(member.actor)

    def close(self) -> None:
        """Let all workers tidy up, and end them."""
        import ray

        with suppress(Exception):
            closing = [member.actor.close.remote() for member in self.members if member.starting is None]
            ray.wait(closing, num_returns=len(closing), timeout=5)
        for member in list(self.members):
            self.remove(member)

    def _room(self, resources: dict[str, float]) -> tuple[int, dict[str, float]]:
        """How many workers a node takes, and what Ray reserves for each."""
        if self.settings.device == "cuda":
            return int(resources.get("GPU", 0)), {"num_gpus": 1, "num_cpus": 0}
        cores = int(resources.get("CPU", 0))
        each = min(self._cores, cores)
        return (cores // each if each else 0), {"num_cpus": each}

    def _start(self, node: str, resources: dict[str, float]) -> Member:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # The second thread answers how far the first one is.
        actor = (
            ray.remote(self._worker)
            .options(
                max_concurrency=2,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                **resources,
            )
            .remote(self.settings)
        )
        return Member(actor, node, actor.ready.remote())


@contextmanager
def connected(address: str) -> Iterator[None]:
    """A connection to a Ray cluster with its token; `local` starts one on this machine, which ends with the batch."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    local = address == "local"
    if local and os.environ["RAY_AUTH_MODE"] == "token":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ImportError:
        raise PahsError("pahs batch needs Ray; pip install 'pahs[cluster]'") from None
    options: dict[str, Any] = {"include_dashboard": False} if local else {}
    if not local:
        _check_that_somebody_listens(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # connection, token and version errors have no common class
        reason = " ".join(str(error).split())[:400]
        raise PahsError(
            f"--on {address}: no connection to Ray ({reason}); see that its head runs there, and that "
            "RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH are those of the cluster"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_that_somebody_listens(address: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise PahsError(f"--on {address}: write local, HOST:PORT of the cluster's head, or ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise PahsError(
            f"--on {address}: no connection to Ray ({error.strerror or error}); see that its head runs there"
        ) from None


def has_gpus() -> bool:
    """Whether any node of the cluster has a GPU."""
    import ray

    return bool(ray.cluster_resources().get("GPU"))
