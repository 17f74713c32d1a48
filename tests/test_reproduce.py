"""`pahs reproduce` at scale tiny: everything once, resumed, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from pahs.benchmarks.zoo import Row
from pahs.errors import PahsError
from pahs.networks import PAHSConfig
from pahs.reproduce import cheap, results
from pahs.reproduce import run as running
from pahs.reproduce.calibrate import choose, spread
from pahs.reproduce.command import Task, chosen_arms, reproduce, train
from pahs.reproduce.figures import SYSTEMS
from pahs.reproduce.full import DATASETS, Published, full_recipe
from pahs.reproduce.layers import layer_tables
from pahs.reproduce.measure import Measured
from pahs.reproduce.pace import Pace
from pahs.reproduce.paper import paper
from pahs.reproduce.plan import ARMS, FILMED, Arm, Unit, config, count, units
from pahs.reproduce.record import read_record
from pahs.reproduce.report import markdown
from pahs.reproduce.scales import SMALL, TINY, with_steps
from pahs.reproduce.store import read_pictures
from pahs.reproduce.videos import write_videos
from pahs.training.recipe_file import load_recipe

RECIPES = Path(__file__).parent.parent / "recipes"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction")
    reproduce(Task(scale="tiny", seeds=1, out=out))
    return out


def test_every_label_of_the_paper_is_in_the_report(everything: Path) -> None:
    text = (everything / "report.md").read_text()
    for label in paper().labels:
        assert f"`{label}`" in text, label
    assert "**no**" not in text, "a layer differs from the paper's table"
    assert len(ARMS) == len(list((everything / "runs").iterdir()))


def test_the_page_needs_no_other_file(everything: Path) -> None:
    text = (everything / "report.html").read_text()
    sources = re.findall(r'src="(.{5})', text)
    assert len(sources) >= 12 and set(sources) == {"data:"}
    assert "href=" not in text and text.count("<table>") == text.count("</table>") > 30


def test_every_claim_has_a_verdict(everything: Path) -> None:
    claims = json.loads((everything / "results.json").read_text())["claims"]
    assert list(claims) == [f"C{n}" for n in range(1, 18)]
    assert {claim["verdict"] for claim in claims.values()} <= {"open", "not run"}, "one seed decides nothing"
    assert claims["C17"]["selection_percent"] == pytest.approx(0.043, abs=0.001)


def test_what_claims_compare_is_followed_over_the_steps(everything: Path) -> None:
    claims = json.loads((everything / "results.json").read_text())["claims"]
    steps = {
        label: {tuple(step for step, _ in finding["over_steps"]) for finding in claims[label]["findings"]}
        for label in ("C1", "C10", "C15", "C16")
    }
    assert steps == {"C1": {(1, 2)}, "C15": {(1, 2)}, "C16": {(1, 2)}, "C10": {(1,)}}
    for finding in claims["C13"]["findings"]:
        assert finding["over_steps"] == [], "BL ends where the others are half way"


def test_pictures_are_not_empty(everything: Path) -> None:
    pictures = sorted((everything / "figures").glob("*.png"))
    assert len(pictures) == 12
    for path in pictures:
        with Image.open(path) as picture:
            assert min(picture.size) > 150 and np.array(picture.convert("L")).std() > 5, path


def test_pictures_are_kept_of_the_arms_that_are_drawn(everything: Path) -> None:
    drawn = {arm for panels in SYSTEMS.values() for _, arm in panels} | {*FILMED}
    assert {path.parent.parent.name for path in everything.glob("runs/*/0/pictures.npz")} == drawn
    for arm in drawn:
        assert (read_pictures(everything, arm) or {}).keys() >= {"restored", "blurry", "sharp"}
        assert (everything / "runs" / arm / "0" / "film.npz").exists() == (arm in FILMED)


def test_the_published_verdicts_follow_from_the_published_scores() -> None:
    published = Path(__file__).parent.parent / "docs" / "reproduction"
    found = results.collect(published, read_record(published).scale)
    claims = json.loads((published / "results.json").read_text())["claims"]
    for one in found.judged:
        assert claims[one.claim.label]["verdict"] == one.verdict, one.claim.label
        for finding, kept in zip(one.findings, claims[one.claim.label]["findings"], strict=True):
            if finding.found is not None:
                assert kept["ours"]["mean"] == pytest.approx(finding.found.mean, abs=1e-9)
    report = (published / "report.md").read_text()
    assert report.splitlines()[:20] == markdown(found, [], published).splitlines()[:20]


def test_a_video_stays_where_it_cannot_be_made_anew(everything: Path, tmp_path: Path) -> None:
    assert write_videos(tmp_path) == []
    shutil.copytree(everything / "videos", tmp_path / "videos")
    assert write_videos(tmp_path) == [tmp_path / "videos" / "held-out.mp4"]
    whole = (tmp_path / "videos" / "held-out.mp4").read_bytes()
    film = Path("runs", "B0", "0", "film.npz")
    (tmp_path / film).parent.mkdir(parents=True)
    shutil.copy(everything / film, tmp_path / film)
    write_videos(tmp_path)
    assert (tmp_path / "videos" / "held-out.mp4").read_bytes() == whole, (
        "with one system of two it would be less"
    )


def test_the_report_alone_changes_nothing(everything: Path) -> None:
    before = (everything / "results.json").read_bytes(), (everything / "report.md").read_bytes()
    reproduce(Task(scale="tiny", report_only=True, out=everything))
    assert before == ((everything / "results.json").read_bytes(), (everything / "report.md").read_bytes())


def trained_only(task: Task) -> None:
    """Without plots, which take longer than the trainings."""
    train(task, TINY, chosen_arms(task.labels), {})
    results.write(results.collect(task.out, task.scale), task.out)


def test_a_killed_run_resumes_to_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(labels=("C5", "C10"), scale="tiny", out=tmp_path / "whole")
    trained_only(task)
    killed, finished = Task(task.labels, task.scale, out=tmp_path / "killed"), []
    measure = running.measure

    def dies(*args: object) -> object:
        finished.append(1)
        if len(finished) == 4:
            raise KeyboardInterrupt
        return measure(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "measure", dies)
    with pytest.raises(KeyboardInterrupt):
        trained_only(killed)
    assert len(list(killed.out.glob("runs/*/*/scores.json"))) == 3
    trained_only(killed)
    for name in ("results.json", "runs/B3/1/scores.json", "runs/BL/0/scores.json"):
        assert (killed.out / name).read_bytes() == (task.out / name).read_bytes(), name


def test_an_arm_that_diverges_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NL has numbers that are not finite, B0 and B3 cannot be measured, so BL has nothing to continue; B1 early not."""
    measure, along, broken = running.measure, running.along, ["B0", "B3"]

    def early(arm: Arm, *rest: object) -> object:
        if arm.name == "B1":
            raise RuntimeError("quantile() input is not finite")
        return along(arm, *rest)  # type: ignore[arg-type]

    def diverged(arm: Arm, *rest: object) -> Measured:
        if arm.name in broken:
            raise RuntimeError("quantile() input is not finite\nsecond line")
        found = measure(arm, *rest)  # type: ignore[arg-type]
        if arm.name != "NL":
            return found
        return replace(found, metrics={**found.metrics, "psnr": (20.0, float("nan"))}, positions=(np.nan,))

    monkeypatch.setattr(running, "measure", diverged)
    monkeypatch.setattr(running, "along", early)
    task = Task(("B0", "B1", "NL", "BL"), "tiny", seeds=1, together=4, out=tmp_path)
    with pytest.raises(PahsError, match=r"3 trainings failed.*BL/0: it continues B3/0") as caught:
        reproduce(task)
    assert "\n" not in str(caught.value) and (tmp_path / "report.md").exists()
    assert {path.parent.name for path in tmp_path.glob("runs/*/0")} == {"B1", "NL"}
    kept = json.loads((tmp_path / "runs" / "NL" / "0" / "scores.json").read_text())
    assert "psnr" not in kept["metrics"] and "ssim" in kept["metrics"] and kept["positions"] == []
    later = json.loads((tmp_path / "runs" / "B1" / "0" / "scores.json").read_text())["metrics"]
    assert "psnr@2" in later and "psnr@1" not in later
    told = capsys.readouterr().err
    assert "NL/0: not finite and left out: psnr" in told
    assert "B1/0, step 1: not measured (RuntimeError: quantile() input is not finite)" in told
    assert "B0/0" in (tmp_path / "failures.json").read_text()

    broken.remove("B0")
    assert {*train(task, TINY, {"B0", "BL"}, {})} == {"B3/0", "BL/0"}, "the others are tried again"
    assert "B0/0" not in (tmp_path / "failures.json").read_text()
    assert (tmp_path / "runs" / "B0" / "0" / "scores.json").exists()


def test_errors_of_the_device_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, broken = torch.device("cuda"), RuntimeError("CUDA error: an illegal memory access")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert running.sticks(broken, cuda) and not running.sticks(ValueError("nan"), cuda)
    assert not running.sticks(torch.cuda.OutOfMemoryError("CUDA out of memory"), cuda)

    def fails(device: object) -> None:
        raise broken

    monkeypatch.setattr(torch.cuda, "synchronize", fails)
    assert running.sticks(RuntimeError("cuDNN error"), cuda)


def test_arms_that_train_together_come_out_alike(tmp_path: Path) -> None:
    alone, together = (Task(("C6",), "tiny", out=tmp_path / n, together=k) for n, k in (("a", 1), ("b", 2)))
    for task in (alone, together):
        trained_only(task)
    assert (alone.out / "results.json").read_bytes() == (together.out / "results.json").read_bytes()


def test_minutes_of_arms_that_train_together_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its share of the common training, and its own measuring."""
    measure = running.measure

    def slow(*args: object) -> Measured:
        time.sleep(1)
        return measure(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "measure", slow)
    task, began = Task(("U0", "U1", "U2"), "tiny", seeds=1, together=3, out=tmp_path), time.monotonic()
    train(task, TINY, {"U0", "U1", "U2"}, {})
    took = time.monotonic() - began
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/*/minutes.json")]
    assert 3 < sum(60 * record["minutes"] for record in records) <= took
    assert all(60 * record["minutes"] > 1 for record in records)


def test_nothing_begins_after_the_minutes_are_over(tmp_path: Path) -> None:
    trained_only(Task(("C6",), "tiny", minutes=1e-9, out=tmp_path))
    assert not list(tmp_path.glob("runs/*")), "nothing begins that would not end in time"


def test_minutes_know_heavy_arms_from_the_run_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new process has trained nothing yet, but the folder says what each arm took, and the process when it began."""
    task = Task(("U0", "NL"), "tiny", seeds=1, out=tmp_path)
    train(task, TINY, {"U0", "NL"}, {})
    for arm, minutes in (("U0", 0.01), ("NL", 5.0)):
        path = tmp_path / "runs" / arm / "0" / "minutes.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "minutes": minutes}))
    capsys.readouterr()
    train(replace(task, seeds=2, minutes=5.5), TINY, {"U0", "NL"}, {})
    told = capsys.readouterr().err
    assert "NL/1: 345 s are needed, 3" in told and "1 trainings are still to do" in told
    assert (tmp_path / "runs" / "U0" / "1").exists() and not (tmp_path / "runs" / "NL" / "1").exists()
    train(replace(task, seeds=2, minutes=6, began=time.monotonic() - 60), TINY, {"NL"}, {})
    assert not (tmp_path / "runs" / "NL" / "1").exists(), "a minute went into starting the process"
    train(replace(task, seeds=2, minutes=6, labels=("NL",)), TINY, {"NL"}, {})
    assert (tmp_path / "runs" / "NL" / "1").exists()


def test_the_pace_of_a_group_is_that_of_its_arms_and_the_slowest_for_new_ones() -> None:
    light, heavy, new = (Unit(ARMS[name], 0) for name in ("U0", "NL", "tsp"))
    pace = Pace({"U0": 10.0, "NL": 20.0})
    assert pace.of([light, heavy]) == pytest.approx(1.15 * 30)
    assert pace.of([new]) == pytest.approx(1.15 * 1.5 * 20)
    assert Pace({}).of([light]) is None


def test_a_process_knows_when_it_began() -> None:
    code = (
        "import time; time.sleep(1.5); from pahs.reproduce.pace import process_began;"
        "print(time.monotonic() - process_began())"
    )
    age = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    assert 1.5 < age < 120


def test_calibrating_chooses_steps_that_fit_and_later_calls_keep_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rehearsal of the first call on a GPU; the seconds are this machine's, the steps follow from them."""
    task = Task(("C6",), "tiny", seeds=1, calibrate=0.1, out=tmp_path)
    train(task, TINY, {"B3", "SE"}, {})
    found = read_record(tmp_path).calibration
    assert found is not None and set(found.seconds) == {"B3", "SE"} and found.together in (1, 2)
    told = capsys.readouterr().err
    assert f"{found.steps} steps, {found.together} at the same time: 2 trainings take" in told
    assert "ms one after the other" in told
    if found.steps > 1:  # a slow machine has no time for more
        assert sum(found.seconds.values()) == pytest.approx(6, rel=0.5)
    scores = json.loads((tmp_path / "runs" / "SE" / "0" / "scores.json").read_text())
    assert f"psnr@{found.steps}" in scores["metrics"]
    # A later call, with and without asking for it again, neither calibrates nor refuses.
    for later in (replace(task, seeds=2, labels=("SE",)), Task(("SE",), "tiny", seeds=2, out=tmp_path)):
        train(later, TINY, {"SE"}, {})
        assert read_record(tmp_path).calibration == found
    assert "calibrating" not in capsys.readouterr().err
    assert f"{found.steps:,} steps" in markdown(results.collect(tmp_path, "tiny"), [], tmp_path)


def test_steps_follow_from_seconds() -> None:
    assert choose(600, fixed=100, a_step=0.9, least=100) == 550
    assert choose(600, fixed=700, a_step=0.9, least=100) == 100, "fewer than the warm-up teach nothing"
    assert [arm.name for arm in spread([ARMS[n] for n in ("U0", "U1", "B0", "B1", "NL")], 3)] == [
        "U0",
        "U1",
        "B1",
    ]
    half = with_steps(SMALL, 520)
    assert (half.curve, half.steps_on) == ((130, 260, 520), 260)
    assert with_steps(SMALL, 1000) == SMALL and with_steps(TINY, 2) == TINY


def test_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    reproduce(Task(("B0",), "tiny", seeds=1, out=tmp_path))
    with pytest.raises(PahsError, match="other settings"):
        reproduce(Task(("B0",), "tiny", seeds=1, steps=3, out=tmp_path))
    with pytest.raises(PahsError, match="holds a reproduction at scale tiny"):
        reproduce(Task(("B0",), "small", data=(f"photos={tmp_path}",), out=tmp_path))


def test_chosen_steps_hold_for_all_that_follows(tmp_path: Path) -> None:
    train(Task(("U0",), "tiny", seeds=1, steps=3, out=tmp_path), TINY, {"U0"}, {})
    train(Task(("B0",), "tiny", seeds=1, out=tmp_path), TINY, {"B0"}, {})
    scores = json.loads((tmp_path / "runs" / "B0" / "0" / "scores.json").read_text())
    assert "psnr@3" in scores["metrics"]
    with pytest.raises(PahsError, match="trainings of 3 steps; leave --steps out"):
        train(Task(("B1",), "tiny", seeds=1, steps=2, out=tmp_path), TINY, {"B1"}, {})
    # They follow from the trainings too, and what a killed one leaves is none.
    (tmp_path / "reproduction.json").unlink()
    train(Task(("B1",), "tiny", seeds=1, out=tmp_path), TINY, {"B1"}, {})
    assert read_record(tmp_path).steps == 3
    (tmp_path / "new" / "runs" / "U0" / ".0.1234.partial").mkdir(parents=True)
    train(Task(("U0",), "tiny", seeds=1, steps=4, out=tmp_path / "new"), TINY, {"U0"}, {})


def test_other_clips_are_refused_whatever_is_asked_for(tmp_path: Path) -> None:
    for side in ("blur", "sharp"):
        (tmp_path / "real" / "clip" / side).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "real" / "clip" / side / "0.png")
    train(Task(("U0",), "tiny", seeds=1, out=tmp_path / "out"), TINY, {"U0"}, {})
    before = (tmp_path / "out" / "reproduction.json").read_bytes()
    with pytest.raises(PahsError, match=r"U0.0: was made with other settings, data"):
        train(Task(("U1",), "tiny", seeds=1, out=tmp_path / "out"), TINY, {"U1"}, {"eval": tmp_path / "real"})
    assert before == (tmp_path / "out" / "reproduction.json").read_bytes()


def test_cut_pictures_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "clips.npz").write_bytes(b"PK\3\4 cut")
    with pytest.raises(PahsError, match=r"clips\.npz: cannot be read .*copy it again"):
        read_pictures(tmp_path, "B0")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Task(("tab:snlb",), "tiny"), "did you mean tab:snla"),
        (Task(scale="small"), "--data photos=FOLDER is missing"),
        (Task(scale="tiny", data=("photo=x",)), "the names are photos, eval"),
        (Task(scale="tiny", data=("photos=/no/where",)), "no such folder"),
        (Task(scale="tiny", seeds=0), "--seeds is 0"),
        (Task(scale="tiny", report_only=True), "holds no reproduction"),
        (Task(scale="tiny", data=("photos=.",)), "--scale tiny does not use it, but eval"),
        (Task(scale="small", data=("gopro=.",)), "--scale small does not use it, but photos, eval"),
        (Task(scale="full", data=("photos=.",)), "--scale full does not use it, but gopro, dvd, reds, start"),
        (Task(scale="tiny", data=("eval=.", "eval=.")), "eval is given twice"),
        (Task(scale="full", steps=9), "--steps is for the scales tiny and small"),
        (Task(scale="full", together=4), "--together is for the scales tiny and small"),
        (Task(scale="full", data=("gopro=.", "start=.")), "--data start= is for reds"),
        (Task(scale="full", calibrate=1), "leave --scale full out"),
        (Task(scale="tiny", calibrate=1, steps=3), "leave --steps out"),
        (Task(scale="tiny", calibrate=0), "--calibrate is 0"),
        (Task(scale="full"), "exactly one of --data gopro=FOLDER"),
    ],
)
def test_wrong_wishes(task: Task, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PahsError, match=re.escape(message)):
        reproduce(task)


def test_a_refused_call_leaves_no_mark(tmp_path: Path) -> None:
    """Real clips that cannot be used are found before anything is trained."""
    (tmp_path / "eval").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "eval" / "photo.png")
    out = tmp_path / "out"
    with pytest.raises(PahsError, match="eval"):
        reproduce(Task(("B0",), "tiny", data=(f"eval={tmp_path / 'eval'}",), out=out))
    with pytest.raises(PahsError, match="exactly one"):
        reproduce(Task(("B0",), "full", out=out))
    with pytest.raises(PahsError, match="photos=FOLDER is missing"):
        reproduce(Task(("B0",), "small", out=out))
    assert not out.exists()


def test_full_refuses_other_frame_counts_than_the_papers(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for side in ("blur", "sharp"):
            folder = tmp_path / split / "take" / side
            folder.mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(folder / "000001.png")
    with pytest.raises(PahsError, match=r"train has 1 frames in 1 sequences, the paper's gopro has 2103"):
        reproduce(Task(scale="full", data=(f"gopro={tmp_path}",), out=tmp_path / "out"))


def test_full_checks_all_start_weights_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in ("train", "val"):
        for side in ("blur", "sharp"):
            folder = tmp_path / "reds" / f"{split}_{side}" / "000"
            folder.mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(folder / "00000000.png")
    monkeypatch.setitem(DATASETS, "reds", Published(1, 1, 1, (1,)))
    begun: list[str] = []
    monkeypatch.setattr("pahs.reproduce.full.trained", lambda unit, *_: begun.append(unit.folder))
    first = tmp_path / "gopro" / "runs" / "B0" / "0" / "weights.safetensors"
    first.parent.mkdir(parents=True)
    first.touch()
    data = (f"reds={tmp_path / 'reds'}", f"start={tmp_path / 'gopro'}")
    with pytest.raises(PahsError, match=r"B0.1.weights\.safetensors is missing and 1 more"):
        reproduce(Task(("B0",), "full", data, out=tmp_path / "out"))
    assert not begun and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["gopro", "dvd", "reds"])
def test_full_trains_by_the_papers_recipes(name: str) -> None:
    recipe = load_recipe(RECIPES / f"{name}.toml", ["train.init_from=''"] if name == "reds" else [])
    ours = full_recipe(Unit(ARMS["B3"], 0), name, Path(recipe.data.root), None)  # type: ignore[arg-type]
    # On REDS all weights come from GOPRO's training, so how first weights are drawn does not matter.
    assert replace(ours.train, init=recipe.train.init) == recipe.train
    assert ours.optim == recipe.optim and ours.schedule == recipe.schedule
    assert ours.model.config == PAHSConfig() and (ours.data.frames, ours.data.size) == (8, 256)
    assert DATASETS[ours.data.layout].epochs == recipe.train.epochs  # type: ignore[index]


def test_generalization_at_full_is_the_recipe() -> None:
    recipe = load_recipe(RECIPES / "generalization.toml", ["model.preset=ifirnn+pahs"])
    ours = full_recipe(Unit(ARMS["ifirnn+"], 0), "gopro", Path(recipe.data.root), None)
    assert ours.model.config == recipe.model.config
    assert (ours.optim, ours.train, ours.schedule) == (recipe.optim, recipe.train, recipe.schedule)


def test_arms_differ_in_what_they_say() -> None:
    shapes = {name: config(arm, SMALL) for name, arm in ARMS.items() if not arm.continues}
    assert len({repr(shape) for shape in shapes.values()}) == len(shapes)
    assert count(shapes["BW"]) >= count(shapes["B3"]) > count(config(ARMS["B0"], SMALL))
    assert all(0.5e6 < count(shape) < 2e6 for shape in shapes.values())


def test_the_plan_is_balanced_after_any_stop() -> None:
    order = units(set(ARMS), SMALL)
    assert len(order) == 14 * 5 + 9 * 3 + 4 * 3 + 8 * 3
    core = order[: 14 * 5]
    assert [unit.seed for unit in core] == sorted(unit.seed for unit in core)
    assert {unit.arm.name for unit in core[:14]} == {unit.arm.name for unit in core[-14:]}
    assert chosen_arms(["C10"]) == {"BL", "UL"}
    assert {unit.arm.name for unit in units({"BL"}, TINY)} == {"B3", "BL"}, "what it goes on from comes first"


def test_every_layer_of_the_papers_tables_is_built() -> None:
    assert all(row[-1] == "yes" for layers in layer_tables() for row in layers.rows)


def test_small_goes_its_whole_length_with_photos(tmp_path: Path) -> None:
    """Its data, its networks and its training on with longer clips, over fewer and smaller frames."""
    for number in range(4):
        noise = np.random.default_rng(number).integers(0, 256, (24, 32, 3)).astype(np.uint8)
        path = tmp_path / "photos" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(noise).resize((160, 120)).save(path)
    sizes = {
        "size": 32,
        "size_on": 32,
        "clip_size": 64,
        "batch": 1,
        "batch_on": 1,
        "frames": 3,
        "frames_on": 3,
    }
    counts = {
        "steps": 2,
        "steps_on": 1,
        "curve": (1, 2),
        "clips": 2,
        "clip_frames": 4,
        "long_clips": 1,
        "long_scored": 1,
    }
    scale = replace(SMALL, **sizes, **counts, long_frames=24)
    task = Task(("BL",), "small", seeds=1, out=tmp_path / "out")
    train(task, scale, {"BL"}, {"photos": tmp_path / "photos"})
    train(task, scale, {"BL"}, {"photos": tmp_path / "photos"})
    scores = json.loads((task.out / "runs" / "BL" / "0" / "scores.json").read_text())
    assert scores["parameters"] == count(SMALL.base)
    assert {"future:23", "large-motion", "neighbour", "selection:backward"} <= set(scores["metrics"])
    (tmp_path / "photos" / "0.png").unlink()
    with pytest.raises(PahsError, match="other settings, data"):
        train(task, scale, {"BL"}, {"photos": tmp_path / "photos"})


def zoo(failing: Sequence[str]) -> object:
    rows = [Row(name, frames=10, seconds=1.0) for name in cheap.MEASURED if name not in failing]
    rows += [Row(name, error="OutOfMemoryError: CUDA out of memory") for name in failing]
    return SimpleNamespace(rows=rows, conditions="a GPU")


def test_speeds_that_failed_are_named_and_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for failing, kept in ((["arvo", "tsp"], False), (["tsp"], True)):
        monkeypatch.setattr("pahs.benchmarks.zoo.measure_all", lambda *_, failing=failing: zoo(failing))
        cheap.measure_speeds(tmp_path)
        told = capsys.readouterr().err
        assert "the speed of tsp could not be measured: OutOfMemoryError" in told
        assert ("no speeds are kept, since arvo is missing" in told) is not kept
        assert (cheap.read_speeds(tmp_path) is not None) is kept


@pytest.mark.parametrize(
    ("labels", "measured"), [((), True), (("C17",), True), (("C5",), False), (("B0", "C17"), True)]
)
def test_speeds_are_measured_where_they_are_asked_for(
    labels: tuple[str, ...], measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    monkeypatch.setattr(cheap, "measure_speeds", calls.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("pahs.reproduce.material.Material", lambda *_: SimpleNamespace())
    monkeypatch.setattr(running, "run", lambda *_: running.Outcome(0, {}))
    train(Task(labels, "small", out=tmp_path), SMALL, set(), {"photos": tmp_path})
    assert bool(calls) is measured


def test_training_needs_only_what_trains(tmp_path: Path) -> None:
    """As on a machine that only trains: a report in Markdown, without pictures; the whole one is made elsewhere."""
    code = (
        "import sys\n"
        "absent = 'av cyclopts markdown_it matplotlib rich scipy skimage tensorboard'\n"
        "sys.modules.update(dict.fromkeys(absent.split()))\n"
        "from pathlib import Path\n"
        "from pahs.reproduce.command import Task, reproduce\n"
        f"reproduce(Task(('U0', 'B3'), 'tiny', seeds=1, out=Path({str(tmp_path)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("markdown-it-py is missing: ")
    assert not (tmp_path / "figures").exists() and not (tmp_path / "report.html").exists()
    assert "matplotlib is missing" in (tmp_path / "report.md").read_text()

    # What docs/reproduction.md says to bring home is enough.
    home = tmp_path / "home"
    shutil.copytree(tmp_path / "runs", home / "runs", ignore=shutil.ignore_patterns("weights.safetensors"))
    with pytest.raises(PahsError, match=r"reproduction\.json is missing"):
        reproduce(Task(report_only=True, out=home))
    shutil.copy(tmp_path / "reproduction.json", home)
    reproduce(Task(report_only=True, out=home))
    assert (home / "figures" / "positions.png").exists() and (home / "report.html").exists()
