"""Recipes: what a file may say, and what is said about a mistake in it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pahs.errors import PahsError
from pahs.training.recipe import OptimSection, Recipe, ScheduleSection, TrainSection
from pahs.training.recipe_file import differences, load_recipe, parse_recipe, to_toml
from pahs.training.schedule import Clock, ema_decay, learning_rate, progress, total_steps

RECIPES = Path(__file__).parent.parent / "recipes"
END = {"train": {"steps": 10}}


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_of_ours_is_read_and_survives_being_written_out(path: Path) -> None:
    recipe = load_recipe(path)
    assert parse_recipe(tomllib.loads(to_toml(recipe))) == recipe
    assert recipe.model.config.build is not None


@pytest.mark.parametrize(
    ("name", "epochs", "milestones"),
    [("gopro", 1000, (200, 400, 600, 800)), ("dvd", 500, (200, 400)), ("reds", 200, (100, 150, 180))],
)
def test_the_papers_recipes_say_what_the_paper_says(
    name: str, epochs: int, milestones: tuple[int, ...]
) -> None:
    recipe = load_recipe(RECIPES / f"{name}.toml")
    assert (recipe.train.epochs, recipe.schedule.milestones) == (epochs, milestones)
    assert (recipe.schedule.kind, recipe.schedule.factor) == ("milestones", 0.5)
    assert (recipe.train.batch, recipe.data.size, recipe.model.preset) == (4, 256, "pahs-paper")
    optim = recipe.optim
    assert (optim.loss, optim.name, optim.lr, optim.betas, optim.eps) == (
        "l1",
        "adam",
        1e-4,
        (0.9, 0.999),
        1e-8,
    )
    assert (optim.frequency_weight, optim.weight_decay, optim.clip, optim.ema) == (0, 0, 0, 0)
    assert bool(recipe.train.init_from) == (name == "reds")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[train]\nsteps = 1\nbacth = 4", "train.bacth"),
        ("[train]\nsteps = 1\nbacth = 4", "'batch'"),
        ("[trian]\nsteps = 1", "'train'"),
        ("[train]\nsteps = 1.5", "train.steps"),
        ("[train]\nsteps = 1\n[optim]\nlr = true", "optim.lr"),
        ("[train]\nsteps = 1\n[optim]\nlr = -1.0", "optim.lr"),
        ("[train]\nsteps = 1\n[optim]\nbetas = [0.9]", "optim.betas"),
        ("[train]\nsteps = 1\n[optim]\nname = 'sgd'", "adamw"),
        ("[train]\nsteps = 1\nepochs = 1", "train.epochs"),
        ("[data]\nframes = 4", "no end"),
        ("[train]\nsteps = 1\n[data]\nkind = 'photos'", "data.root"),
        ("[train]\nsteps = 1\n[data]\nsize = 50", "multiple of 16"),
        ("[train]\nsteps = 1\n[data]\nsynthesis = { sub_frames = 4 }", "sub_frames"),
        ("[train]\nsteps = 1\n[model]\npreset = 'phas'", "pahs-t"),
        ("[train]\nsteps = 1\n[model]\nwidth = 3", "model.width"),
        ("[train]\nsteps = 1\n[model]\nconfig = 3", "model.config"),
        ("[train]\nsteps = 1\n[model.config]\nwdith = 3", "model.config.wdith"),
        ("[train]\nsteps = 1\n[model.config.refine]\nping_pong = 3", "'ping_pongs'"),
        ("[train]\nsteps = 1\n[model.config]\nwidth = 2", "width is 2"),
        ("model = 1\n[train]\nsteps = 1", "[model]"),
        ("[train\nsteps = 1", "TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PahsError) as caught:
        load_recipe(write(tmp_path, text))
    message = str(caught.value)
    assert told in message and "recipe.toml" in message and "\n" not in message


def test_missing_and_unreadable_recipes(tmp_path: Path) -> None:
    with pytest.raises(PahsError, match="no such recipe"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(PahsError, match="cannot be read"):
        load_recipe(tmp_path)


def test_set_takes_toml_values_and_bare_words(tmp_path: Path) -> None:
    path = write(tmp_path, "[train]\nsteps = 1")
    sets = [
        "train.steps=7",
        "data.root=some/folder",
        "data.kind='photos'",
        "model.config.refine.ping_pongs=1",
    ]
    recipe = load_recipe(path, [*sets, "optim.betas=[0.5, 0.9]", "optim.lr=1e-3", "train.compile=false"])
    assert recipe.train.steps == 7 and recipe.train.compile is False
    assert (recipe.data.root, recipe.data.kind) == ("some/folder", "photos")
    assert recipe.optim.betas == (0.5, 0.9) and recipe.optim.lr == 1e-3
    assert recipe.model.config.refine.ping_pongs == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["train.steps", "=3", "train.steps.more=3", "train..steps=3"])
def test_a_wrong_set_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PahsError, match="--set"):
        load_recipe(write(tmp_path, "[train]\nsteps = 1"), [text])


def test_a_preset_is_the_default_of_its_configuration() -> None:
    recipe = parse_recipe({**END, "model": {"preset": "pahs-s", "config": {"width": 12}}})
    config = recipe.model.config
    assert config.width == 12 and config.shared_extractor  # type: ignore[attr-defined]


def test_a_written_recipe_shows_the_clips_that_are_trained_with() -> None:
    recipe = parse_recipe({**END, "data": {"frames": 12, "size": 64, "synthesis": {"frames": 3}}})
    synthesis = tomllib.loads(to_toml(recipe))["data"]["synthesis"]
    assert [synthesis[key] for key in ("frames", "height", "width")] == [12, 64, 64]


def test_differences_are_named() -> None:
    a, b = parse_recipe(END), parse_recipe({"train": {"steps": 11}, "model": {"config": {"width": 12}}})
    tables = (tomllib.loads(to_toml(recipe)) for recipe in (a, b))
    assert differences(*tables) == ["model.config.width", "train.steps"]


@given(st.text(max_size=20).filter(lambda s: s.isprintable()))
def test_any_text_survives_being_written(text: str) -> None:
    recipe = parse_recipe({**END, "data": {"kind": "photos", "root": text or "x"}})
    assert parse_recipe(tomllib.loads(to_toml(recipe))) == recipe


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 50))
def test_cosine_falls_from_the_peak_to_its_end(a: float, b: float, warmup: int) -> None:
    schedule = ScheduleSection(kind="cosine", warmup_steps=warmup, final=0.1)
    early, late = (learning_rate(schedule, 2.0, 100, done, 0) for done in sorted((a, b)))
    assert 0.2 - 1e-9 <= late <= early <= 2.0
    assert learning_rate(schedule, 2.0, 100, 0.0, 0) == 2.0
    assert learning_rate(schedule, 2.0, 100, 1.0, 0) == pytest.approx(0.2)


def test_warm_up_rises_linearly_to_the_peak() -> None:
    schedule = ScheduleSection(kind="constant", warmup_steps=4)
    assert [learning_rate(schedule, 1.0, step, 0.0, 0) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


@pytest.mark.parametrize("per_epoch", [1, 3, 7, 525])
def test_milestones_fall_on_the_first_step_of_their_epoch(per_epoch: int) -> None:
    recipe = load_recipe(RECIPES / "gopro.toml")
    steps = total_steps(recipe.train, per_epoch)
    assert steps == 1000 * per_epoch
    for epoch, factor in ((200, 0.5), (400, 0.25), (600, 0.125), (800, 0.0625)):
        for step, expected in ((epoch * per_epoch - 1, 2 * factor), (epoch * per_epoch, factor)):
            done = progress(step, steps, 0.0)
            assert learning_rate(recipe.schedule, 1.0, step, done, recipe.train.epochs) == expected


def test_progress_is_the_nearer_end() -> None:
    assert progress(5, 10, 0.0) == 0.5
    assert progress(5, 10, 0.8) == 0.8
    assert progress(5, 0, 0.3) == 0.3
    assert progress(10, 10, 0.1) == progress(3, 10, 1.7) == 1.0


def test_a_clock_leaves_preparation_out_of_the_schedule_but_not_of_the_budget() -> None:
    clock = Clock(before=100.0, preparing=20.0)
    clock.started -= 20  # this process began 20 s ago: 120 s in all
    clock.prepared()
    assert clock.elapsed() == pytest.approx(120, abs=1)
    assert clock.spent(max_minutes=4) == pytest.approx(80 / 200, abs=0.01)
    assert clock.spent(max_minutes=0) == 0
    clock.started -= 120
    assert clock.spent(max_minutes=4) == pytest.approx(1, abs=0.01)


def test_a_young_average_forgets_faster() -> None:
    decays = [ema_decay(0.999, step) for step in (0, 10, 100, 100_000)]
    assert decays == sorted(decays) and decays[0] == 0.1 and decays[-1] == 0.999
    assert ema_decay(0.0, 1000) == 0.0


def test_defaults_of_a_section_are_checked_too() -> None:
    with pytest.raises(ValueError, match="no end"):
        Recipe()
    with pytest.raises(ValueError, match=r"optim\.ema"):
        OptimSection(ema=1.0)
    with pytest.raises(ValueError, match=r"train\.max_minutes"):
        TrainSection(steps=1, max_minutes=-1)
