"""Training on several machines: the same result on any number of them, and none is lost when one of them is.

Machines are network namespaces where root and iproute2 are there, else processes on the loopback (`nodes.py`). A short
version runs with all tests; PAHS_NODES_HARD=1 runs the full one.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file

from nodes import Machine, free_port, machines
from pahs.errors import PahsError
from pahs.train import train
from pahs.training.checkpoint import read_checkpoint
from pahs.training.share import Share
from pahs.training.together import problem
from test_train import ENVIRONMENT, TINY, metrics, python

HARD = bool(os.environ.get("PAHS_NODES_HARD"))
STEPS = 20
KILLS, LONG = 10, 60
"""Kills of one run, and its steps; after so many, networks that rounded differently are no longer 1e-5 apart."""
hard = pytest.mark.skipif(not HARD, reason="takes minutes: make test-nodes-hard")
SETS = ("train.batch=4", f"train.steps={STEPS}", "train.checkpoint_steps=1", "train.report_seconds=100.0")


@dataclass
class Job:
    """One training that several machines take part in."""

    recipe: Path
    out: Path
    first: Machine
    """Hosts the meeting point."""
    port: int
    nodes: str = "2"
    sets: tuple[str, ...] = SETS

    def join(self, machine: Machine) -> subprocess.Popen[str]:
        """Start the same command on a machine, as docs/training.md has it, with less patience."""
        patience = "keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=3"
        meeting = f"--rdzv-id tiny --rdzv-backend c10d --rdzv-endpoint {self.first.address}:{self.port}"
        host = f"--rdzv-conf is_host={int(machine is self.first)},{patience}"
        here = f"--local-addr {machine.address} --nproc-per-node 1 --monitor-interval 0.1"
        return machine.start(
            *python("-m", "torch.distributed.run", "--nnodes", self.nodes, "--max-restarts", "100"),
            *meeting.split(),
            *host.split(),
            *here.split(),
            *("-m", "pahs", "train", str(self.recipe), "--resume", "--output", str(self.out)),
            *(word for text in self.sets for word in ("--set", text)),
            log=self.out.with_name(f"{machine.name}.log"),
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )

    def step(self) -> int:
        """The step of the checkpoint, which is whole at any moment."""
        path = self.out / "last.ckpt"
        return read_checkpoint(path).step if path.exists() else 0

    def wait_for(self, step: int, process: subprocess.Popen[str]) -> None:
        while self.step() < step:
            assert process.poll() is None, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        return "\n".join(path.read_text() for path in self.out.parent.glob("*.log"))

    def finish(self, *processes: subprocess.Popen[str]) -> None:
        assert [process.wait(timeout=240) for process in processes] == [0] * len(processes), self.log()
        assert not list(self.out.rglob(".*")), "nothing half-written is left"


def job(folder: Path, first: Machine, nodes: str = "2", sets: tuple[str, ...] = ()) -> Job:
    recipe = folder / "tiny.toml"
    recipe.write_text(TINY)
    return Job(recipe, folder / "out", first, free_port(), nodes, (*SETS, *sets))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on two machines that nothing disturbed."""
    folder = tmp_path_factory.mktemp("two")
    with machines(2) as (first, second):
        run = job(folder, first)
        run.finish(run.join(first), run.join(second))
    assert "a batch of 4 is 2 clips for each process, 2 at once" in run.log()
    return run.out


def apart(one: Path, other: Path, steps: int = STEPS) -> float:
    """The largest difference between the networks, and between the averaged ones, of two runs."""
    a, b = (read_checkpoint(folder / "last.ckpt") for folder in (one, other))
    assert a.step == b.step == steps and a.model.keys() == b.model.keys()
    pairs = [*((a.model[name], b.model[name]) for name in a.model), *zip(a.ema, b.ema, strict=True)]
    files = [load_file(folder / "weights.safetensors") for folder in (one, other)]
    pairs += [(files[0][name], files[1][name]) for name in files[0]]
    return max(float((x - y).abs().max()) for x, y in pairs)


@pytest.mark.parametrize("at_once", [0, 2, 3])
def test_two_machines_train_like_one_process(at_once: int, two: Path, tmp_path: Path) -> None:
    """With the whole batch at once, or in passes whose gradients are added up, even or not."""
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    train(recipe, [*SETS, f"train.at_once={at_once}"], out=tmp_path / "one")
    distance = apart(tmp_path / "one", two)
    print(f"weights of one process and of two machines: {distance:.1e} apart at most")
    assert distance < 1e-5
    one, other = metrics(tmp_path / "one"), metrics(two)
    assert len(one) == len(other) == STEPS // 2 + 1
    for a, b in zip(one, other, strict=True):
        for name in {"loss", "gradient_norm", "lr", "psnr_out"} & a.keys():
            assert a[name] == pytest.approx(b[name], rel=1e-3), name


def test_a_killed_machine_is_replaced(two: Path, tmp_path: Path) -> None:
    """All processes of one get SIGKILL; another takes its place, and the result is the same, bit for bit."""
    with machines(3) as (first, second, third):
        run = job(tmp_path, first)
        stays = run.join(first)
        run.join(second)
        run.wait_for(random.Random().randint(1, 12), stays)
        second.kill()
        run.finish(stays, run.join(third))
    log = run.log()
    assert "another process of this training is gone or silent (" in log
    assert "resuming at step" in log and "Traceback" not in log
    assert apart(run.out, two) == 0
    steps = [row["step"] for row in metrics(run.out)]
    assert steps == [row["step"] for row in metrics(two)], "the curve has every step once"


def test_a_run_goes_on_with_fewer_processes(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    shutil.copytree(two, tmp_path / "out")
    train(recipe, [*SETS, f"train.steps={STEPS + 2}"], resume=True, out=tmp_path / "out")
    told = capsys.readouterr().err
    assert f"resuming at step {STEPS} (processes: 2 until here, 1 now)" in told
    assert "a batch of 4, 2 at once" in told, "no more at once than fitted before"
    after = read_checkpoint(tmp_path / "out" / "last.ckpt")
    assert (after.step, after.world, after.at_once) == (STEPS + 2, 1, 2)


def launch(recipe: Path, more: Iterable[Iterable[str]]) -> list[tuple[int, str]]:
    """Two processes of one machine, as torchrun would start them; their exit codes and what they say."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "t"}
    place |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "lo"}
    place |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "GROUP_RANK": "0"}
    command = python("-m", "pahs", "train", recipe)
    running = [
        subprocess.Popen(
            [*command, *options],
            env={**ENVIRONMENT, **place, "RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, options in enumerate(more)
    ]
    return [(process.wait(), error) for process in running for error in [process.communicate()[1]]]


def test_processes_that_want_different_things_end_with_one_line(tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    out = ("--output", str(tmp_path / "out"))
    ended = launch(recipe, (out, (*out, "--set", "optim.lr=2e-3")))
    for code, told in ended:
        (line,) = [line for line in told.splitlines() if "error" in line.lower()]
        assert code == 2 and line == (
            "error: process 0 has optim.lr = 0.001, process 1 has 0.002; "
            "start every process with the same recipe, options and data"
        )
        assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


def test_an_error_of_one_process_is_told_by_all() -> None:
    assert problem([None, None], [{"a": 1}, {"a": 1}]) is None
    assert problem(["same", "same"], [{}, {}]) == "same"
    assert problem([None, "clips: no such folder"], [{"a": 1}, {}]) == "process 1 of 2: clips: no such folder"
    assert "a = 1, process 1 has 2" in str(problem([None, None], [{"a": 1}, {"a": 2}]))


def test_every_clip_of_a_batch_is_made_by_one_process() -> None:
    with pytest.raises(PahsError, match=r"train\.batch = 4 .* 5 processes; raise it, or start fewer"):
        Share(0, 5).clips(4)
    numbers = [n for rank in range(3) for n in range(*Share(rank, 3).clips(8).indices(8))]
    assert numbers == list(range(8))


# make test-nodes-hard


@hard
def test_machines_without_a_common_folder_continue_from_the_newest_checkpoint(
    two: Path, tmp_path: Path
) -> None:
    """It lies on the disk of the second one; the first one, which writes, has none."""
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    folders = tmp_path / "new", Path(shutil.copytree(two, tmp_path / "old"))
    sets = tuple(word for text in (*SETS, f"train.steps={STEPS + 2}") for word in ("--set", text))
    first, second = launch(recipe, [("--resume", "--output", str(folder), *sets) for folder in folders])
    assert (first[0], second[0]) == (0, 0), first[1] + second[1]
    assert f"resuming at step {STEPS}" in first[1]
    assert read_checkpoint(folders[0] / "last.ckpt").step == STEPS + 2
    alone = shutil.copytree(two, tmp_path / "alone")
    train(recipe, [*SETS, f"train.steps={STEPS + 2}"], resume=True, out=alone)
    a, b = (read_checkpoint(folder / "last.ckpt").model for folder in (folders[0], alone))
    assert max(float((a[name] - b[name]).abs().max()) for name in a) < 1e-5


@hard
def test_killed_at_random_moments_the_end_is_the_same(tmp_path: Path) -> None:
    """Any of the machines, also the one that writes the checkpoints and hosts the meeting point, while it writes."""
    chance = random.Random(5)
    (tmp_path / "undisturbed").mkdir()
    with machines(2) as (first, second):
        undisturbed = job(tmp_path / "undisturbed", first, sets=(f"train.steps={LONG}",))
        undisturbed.finish(undisturbed.join(first), undisturbed.join(second))
    with machines(2 + KILLS) as made:
        spare = iter(made)
        first, second = next(spare), next(spare)
        run = job(tmp_path, first, sets=(f"train.steps={LONG}",))
        jobs = {first.name: run.join(first), second.name: run.join(second)}
        halves = 0
        for number in range(KILLS):
            run.wait_for(min(LONG - 1, run.step() + 4), jobs[first.name])
            time.sleep(chance.uniform(0, 0.5))
            before = run.step()
            if chance.random() < 0.5:
                second.kill()
                second = next(spare)
                jobs[second.name] = run.join(second)
                killed = "the second machine"
            else:
                ends = time.monotonic() + 20
                first.kill(lambda: any(run.out.glob(".last.ckpt*")) or time.monotonic() > ends)  # noqa: B023
                halves += any(run.out.glob(".last.ckpt*"))
                lost = time.monotonic()
                while second.processes() and time.monotonic() - lost < 90:
                    time.sleep(0.1)  # torchrun ends without its meeting point
                second.kill()
                first, second = second, next(spare)
                run.first, run.port = first, free_port()
                jobs[first.name], jobs[second.name] = run.join(first), run.join(second)
                killed = "the first machine"
            print(
                f"kill {number + 1} of {KILLS}: {killed}, at step {before}; the checkpoint has step {run.step()}"
            )
        run.finish(jobs[first.name], jobs[second.name])
    print(f"{halves} kills left a checkpoint half-written beside the last good one")
    assert apart(run.out, undisturbed.out, LONG) == 0


@hard
@pytest.mark.parametrize("patience", [0.1, 30.0])
def test_a_machine_that_falls_silent_is_given_up(patience: float, two: Path, tmp_path: Path) -> None:
    """Its cable is pulled: no connection is closed, so only time tells, or a replacement that joins."""
    with machines(3) as (first, second, third):
        if not first.namespace:
            pytest.skip("needs network namespaces: root and iproute2")
        run = job(tmp_path, first, sets=(f"train.timeout_minutes={patience}",))
        stays = run.join(first)
        run.join(second)
        run.wait_for(4, stays)
        second.unplug()
        began = time.monotonic()
        replacement = run.join(third)
        run.finish(stays, replacement)
        print(f"silent machine replaced, and the run ended, after {time.monotonic() - began:.0f} s")
    assert apart(run.out, two) == 0


@hard
def test_the_survivor_goes_on_alone(two: Path, tmp_path: Path) -> None:
    """With --nnodes 1:2 nobody waits for a replacement; the gradients of two passes are added up instead."""
    with machines(2) as (first, second):
        run = job(tmp_path, first, nodes="1:2")
        stays = run.join(first)
        run.join(second)
        run.wait_for(4, stays)
        second.kill()
        run.finish(stays)
    log = run.log()
    assert re.search(r"resuming at step \d+ \(processes: 2 until here, 1 now\)", log)
    assert "a batch of 4, 2 at once" in log
    distance = apart(run.out, two)
    print(f"weights of the survivor and of two machines: {distance:.1e} apart at most")
    assert distance < 1e-5


@hard
def test_a_machine_that_comes_later_is_taken_in(tmp_path: Path) -> None:
    with machines(3) as (first, second, third):
        run = job(tmp_path, first, nodes="1:2", sets=("train.steps=400",))
        stays = run.join(first)
        run.join(second)
        run.wait_for(4, stays)
        second.kill()
        while "2 until here, 1 now" not in run.log():
            assert stays.poll() is None, run.log()
            time.sleep(0.05)
        run.finish(stays, run.join(third))
    assert re.search(r"resuming at step \d+ \(processes: 1 until here, 2 now\)", run.log())
    assert read_checkpoint(run.out / "last.ckpt").step == 400
