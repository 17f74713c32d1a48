"""Plain data into dataclasses: what fits is taken, what does not is named."""

from dataclasses import asdict, dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pahs import configs
from pahs.networks import PAHSConfig, RefineConfig


@dataclass(frozen=True)
class Inner:
    ratio: float = 0.5
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    count: int
    name: str | None = None
    span: tuple[float, float] = (0.0, 1.0)
    steps: tuple[int, ...] = ()
    on: bool = False
    inner: Inner = field(default_factory=Inner)


@given(
    width=st.integers(6, 200),
    two=st.booleans(),
    count=st.integers(0, 9),
    attention=st.sampled_from(["none", "non-local", "selective"]),
)
def test_a_configuration_survives_the_way_through_plain_data(
    width: int, two: bool, count: int, attention: Literal["none", "non-local", "selective"]
) -> None:
    config = PAHSConfig(width, two, refine=RefineConfig(count, attention=attention))
    assert configs.build(PAHSConfig, asdict(config)) == config


def test_values_are_taken_as_the_annotation_says() -> None:
    data = {"count": 3, "name": "x", "span": [1, 2.5], "steps": [1, 2], "inner": {"ratio": 1}}
    assert configs.build(Outer, data) == Outer(3, "x", (1.0, 2.5), (1, 2), False, Inner(1.0))
    assert configs.build(Outer, {"count": 3, "name": None}).name is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"count": "3"}, "count is '3'; it must be int"),
        ({"count": True}, "count is True; it must be int"),
        ({"count": 1, "on": 1}, "on is 1; it must be bool"),
        ({"count": 1, "name": 5}, "name is 5; it must be str"),
        ({"count": 1, "span": [1.0]}, "span needs 2 values, not 1"),
        ({"count": 1, "steps": [1, "x"]}, r"steps\[1\] is 'x'"),
        ({"count": 1, "inner": {"kind": "c"}}, "inner.kind is 'c'; choose one of a, b"),
        ({"count": 1, "inner": {"rtio": 1}}, "unknown key 'inner.rtio'; did you mean 'ratio'"),
        ({"count": 1, "inner": 4}, "inner is 4"),
        ({"count": 1, "zzz": 4}, "unknown key 'zzz'; known: count"),
        ({}, "count"),
    ],
)
def test_what_does_not_fit_is_named(data: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configs.build(Outer, data)
