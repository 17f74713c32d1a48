"""Scale full: the published networks on a published dataset, by the paper's recipe and protocol.

One dataset for a reproduction: gopro, dvd or reds. Weeks on one GPU; every training resumes from its checkpoint. REDS
starts from the weights of a GOPRO reproduction (`--data start=FOLDER`), as in the paper.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pahs import __version__
from pahs.data.layouts import PairedDataset, open_dataset
from pahs.errors import PahsError
from pahs.evaluate import EvaluateOptions, evaluate
from pahs.evaluation.flops import parameters
from pahs.files import whole
from pahs.networks import PRESETS, Deblurrer, ModelConfig, PAHSConfig
from pahs.progress import say
from pahs.reproduce import store
from pahs.reproduce.plan import ARMS, FUTURE, PARTS, Arm, Unit
from pahs.reproduce.record import check, write_record
from pahs.reproduce.verdicts import Scores
from pahs.runtime.load import load
from pahs.train import main
from pahs.training.recipe import (
    DataSection,
    ModelSection,
    Recipe,
    ScheduleSection,
    TrainSection,
    ValidationSection,
)
from pahs.training.run import FINAL, LAST
from pahs.training.setup import setup

Dataset = Literal["gopro", "dvd", "reds"]
LOOK_AHEAD = 19


@dataclass(frozen=True)
class Published:
    """A dataset's size in frames, and how the paper trains on it."""

    train: int
    test: int
    epochs: int
    milestones: tuple[float, ...]


DATASETS: dict[Dataset, Published] = {
    "gopro": Published(2103, 1111, 1000, (200, 400, 600, 800)),
    "dvd": Published(5708, 1000, 500, (200, 400)),
    "reds": Published(24000, 3000, 200, (100, 150, 180)),
}
GENERALIZATION_EPOCHS = 500


def run_full(
    arms: set[str], folders: dict[str, Path], out: Path, seeds: int | None, deadline: float | None
) -> None:
    """Train and score what is missing; nothing begins after `deadline`, a time of `time.monotonic`."""
    name = chosen_dataset(folders)
    record = check(out, "full")
    root = folders[name]
    checked(root, name, "train")
    test = checked(root, name, "test")
    left = [u for u in full_units(arms, seeds) if not store.finished(out, u, fingerprint(u, name))]
    check_start(left, name, folders.get("start"))
    write_record(out, record)
    for unit in left:
        if deadline is not None and time.monotonic() > deadline:
            say("the time is over: the same command continues")
            return
        network = load(str(trained(unit, name, root, folders.get("start"), out)), precision="fp32")
        keep(unit, network, test, fingerprint(unit, name), out)


def chosen_dataset(folders: dict[str, Path]) -> Dataset:
    there = [name for name in DATASETS if name in folders]
    if len(there) != 1:
        raise PahsError(
            "--scale full needs one dataset: exactly one of --data gopro=FOLDER, dvd=FOLDER, reds=FOLDER"
        )
    if there[0] == "reds" and "start" not in folders:
        raise PahsError(
            "--data start=FOLDER is missing: on REDS the paper starts from its GOPRO weights; name that run"
        )
    if there[0] != "reds" and "start" in folders:
        raise PahsError(
            f"--data start= is for reds: on {there[0]} the paper starts from random weights; leave it out"
        )
    return there[0]


def check_start(left: Sequence[Unit], name: Dataset, start: Path | None) -> None:
    """Refuse a reproduction to start from that lacks weights, before weeks go into those that are there."""
    if start is None or name != "reds":
        return
    needed = [start_weights(start, unit) for unit in left if not unit.arm.continues]
    if missing := [path for path in needed if not path.exists()]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PahsError(
            f"--data start={start}: {missing[0]} is missing{more}; train these arms and seeds on GOPRO first"
        )


def start_weights(start: Path, unit: Unit) -> Path:
    return store.folder(start, unit) / store.WEIGHTS


def checked(root: Path, name: Dataset, split: Literal["train", "test"]) -> PairedDataset:
    """The dataset, refused if it has another number of frames than the paper says."""
    dataset = open_dataset(root, name, split)
    expected = getattr(DATASETS[name], split)
    if dataset.frames != expected:
        raise PahsError(
            f"{root}: {split} has {dataset.frames} frames in {len(dataset.sequences)} sequences, the paper's {name} "
            f"has {expected}; numbers would not compare, so unpack the published dataset"
        )
    return dataset


def full_units(arms: set[str], seeds: int | None) -> list[Unit]:
    """Arm by arm; neither module and both have three seeds, because their difference is the paper's."""
    wanted = arms | {ARMS[name].continues for name in arms if ARMS[name].continues}
    chosen = [arm for part in PARTS for arm in ARMS.values() if arm.part == part and arm.name in wanted]
    return [
        Unit(arm, seed) for arm in chosen for seed in range(seeds or (3 if arm.name in ("B0", "B3") else 1))
    ]


def full_config(arm: Arm) -> ModelConfig:
    """The network as published."""
    if arm.system == "pahs":
        shape = PAHSConfig(bidirectional=arm.bidirectional, refine=arm.refine)
        if arm.like:  # as many parameters as the whole network
            shape = replace(shape, width=199)
        return shape
    names = {"edvr": "edvr-l", "estrnn": "estrnn-c80b15"}
    preset = names.get(arm.system, arm.system) + ("-1" if arm.replaces_iterations else "")
    return PRESETS[preset + ("+pahs" if arm.plugged else "")].config


def full_recipe(unit: Unit, name: Dataset, root: Path, start: Path | None) -> Recipe:
    """The paper's training: `recipes/{gopro,dvd,reds}.toml`, for Table 5 `recipes/generalization.toml`."""
    published = DATASETS[name]
    epochs, milestones = published.epochs, published.milestones
    if unit.arm.part == "plug-ins":
        epochs, milestones = GENERALIZATION_EPOCHS, (200, 400)
    first = str(start_weights(start, unit)) if start and name == "reds" else ""
    return Recipe(
        model=ModelSection(preset="pahs-paper", config=full_config(unit.arm)),
        data=DataSection(kind="dataset", root=str(root), layout=name, frames=8, size=256, seed=unit.seed),
        schedule=ScheduleSection(kind="milestones", milestones=milestones),
        train=TrainSection(batch=4, epochs=epochs, seed=unit.seed, init="torch", init_from=first),
        validation=ValidationSection(every=5000, clips=11, frames=20),
    )


def trained(unit: Unit, name: Dataset, root: Path, start: Path | None, out: Path) -> Path:
    """The weights of an arm; `continues` arms are those that they continue: at this scale clips are long anyway."""
    if unit.arm.continues:
        return store.folder(out, Unit(ARMS[unit.arm.continues], unit.seed)) / store.WEIGHTS
    folder = out / "training" / unit.folder
    if not (folder / FINAL).exists():
        recipe = full_recipe(unit, name, root, start)
        main(setup(recipe), recipe, folder, resume=(folder / LAST).exists())
    return folder / FINAL


def keep(unit: Unit, network: Deblurrer, test: PairedDataset, mark: str, out: Path) -> None:
    """Score on the test set, by the paper's protocols, and keep the numbers."""
    began, both = time.monotonic(), network.contract.family == "bidirectional"
    standard = EvaluateOptions(look_ahead=LOOK_AHEAD if both else None)

    def scored(
        options: EvaluateOptions, value: Callable[..., float] = lambda mean: mean.psnr
    ) -> tuple[float, ...]:
        result = evaluate(network, test, options, name=unit.arm.name, quiet=False)
        return tuple(value(sequence.mean) for sequence in result.sequences)

    plain = evaluate(network, test, standard, name=unit.arm.name, quiet=False)
    metrics = {
        "psnr": tuple(s.mean.psnr for s in plain.sequences),
        "ssim": tuple(s.mean.ssim for s in plain.sequences),
        "psnr:input": tuple(s.mean.blurry_psnr for s in plain.sequences),
    }
    if "large-motion" in unit.arm.extras:
        metrics["large-motion"] = scored(replace(standard, every_second=True))
    if "neighbour" in unit.arm.extras:
        metrics["neighbour"] = scored(replace(standard, replace_neighbour=True))
    if "future" in unit.arm.extras and not both:
        metrics["future:own"] = metrics["psnr"]
    elif "future" in unit.arm.extras:
        metrics |= {f"future:{n}": scored(replace(standard, look_ahead=n)) for n in FUTURE}
    scores = Scores(unit.arm.name, unit.seed, mark, parameters(network), metrics)
    with whole(store.folder(out, unit)) as partial:
        partial.mkdir(parents=True)
        store.write_scores(partial / store.SCORES, scores)
        if not unit.arm.continues:
            source = out / "training" / unit.folder / FINAL
            (partial / store.WEIGHTS).write_bytes(source.read_bytes())
        record = {"minutes": (time.monotonic() - began) / 60, "machine": plain.model.device}
        (partial / store.MINUTES).write_text(json.dumps(record) + "\n")


def fingerprint(unit: Unit, name: Dataset) -> str:
    return f"{__version__} {name} {unit.folder}"
