from __future__ import annotations

import numpy as np
import pytest

from tracrl.collect.rollout import to_box
from tracrl.envs import environment
from tracrl.envs.environment import Environment, EnvSpec
from tracrl.errors import TracrlError


def drive(spec: EnvSpec, steps: int = 50) -> list[tuple[float, float, bool, bool]]:
    env = Environment(EnvSpec.of(spec))
    env.reset(0)
    outcomes = []
    for _ in range(steps):
        _, *outcome = env.step((env.low + env.high) / 2)
        outcomes.append(tuple(outcome))
        if outcome[2] or outcome[3]:
            break
    return outcomes  # type: ignore[return-value]


def test_actions_run_from_one_end_of_the_box_to_the_other() -> None:
    low, high = np.array([0, -10], np.float32), np.array([4, 30], np.float32)
    np.testing.assert_array_equal(to_box(np.array([-1, -1], np.float32), low, high), low)
    np.testing.assert_array_equal(to_box(np.array([1, 9], np.float32), low, high), high)
    np.testing.assert_array_equal(to_box(np.array([0, 0.5], np.float32), low, high), [2, 20])


def test_an_environment_may_be_used_in_the_middle_of_its_box_alone() -> None:
    whole, part = Environment(EnvSpec("tiny_envs:Road")), Environment(EnvSpec("tiny_envs:Road", reach=(0.5,)))
    middle = (whole.low + whole.high) / 2
    np.testing.assert_allclose(part.low, (whole.low + middle) / 2)
    np.testing.assert_allclose(part.high, (whole.high + middle) / 2)
    np.testing.assert_array_equal(part.info.action_high, part.high)
    assert part.spec.to_dict() == {**whole.spec.to_dict(), "reach": [0.5]}


def test_a_class_an_id_and_a_time_limit() -> None:
    for name, limit, length in (("tiny_envs:Road", None, 20), ("tiny_envs:TinyRoad-v0", None, 12)):
        assert len(drive(EnvSpec(name, max_steps=limit))) == length
    cut = drive(EnvSpec("tiny_envs:Endless", max_steps=7))
    assert len(cut) == 7
    assert cut[-1][2:] == (False, True)
    assert drive(EnvSpec("tiny_envs:Cliff"))[-1][2:] == (True, False)


def test_a_cost_under_another_name() -> None:
    assert {cost for _, cost, *_ in drive(EnvSpec("tiny_envs:Unpriced", cost_key="price"))} == {1.0}


def test_versions_name_the_users_own_package() -> None:
    assert Environment(EnvSpec("tiny_envs:Road")).info.versions["tiny_envs"] == "1.2.3"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("BalRun", "did you mean BallRun"),
        ("no_such_package.envs:Road", "there is no module no_such_package; install"),
        ("tiny_envs:Raod", r"no class Raod and registers no such id: did you mean tiny_envs:Road\?"),
        ("tiny_envs:__version__", "no class __version__"),
        ("tiny_envs:np", "no class np"),
        ("json:loads", "cannot be made without arguments .missing a required argument: 's'."),
        ("builtins:dict", "makes a dict; expected a gymnasium.Env"),
        ("NoSuchEnvironment-v0", "Gymnasium knows no environment 'NoSuchEnvironment-v0'"),
        ("tiny_envs:Switch", r"action space is Discrete\(2\); only continuous actions"),
        ("tiny_envs:Boundless", "every end must be finite"),
        ("tiny_envs:Pair", "observation space is Dict.*FlattenObservation"),
        ("tiny_envs:Unpriced", "info has no 'cost' after step 1 .it holds 'price', 'note'.; .*--cost-key"),
        ("tiny_envs:Refunding", "is -1.0 after step 1; a cost must be finite and 0 or more"),
        ("tiny_envs:Foggy", "after step 3 holds nan at index 1"),
        ("", "No environment is named"),
    ],
)
def test_what_cannot_be_collected_from_is_said_in_one_sentence(name: str, said: str) -> None:
    with pytest.raises(TracrlError, match=said):
        drive(EnvSpec(name))


def test_episodes_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "LONGEST", 30)
    with pytest.raises(TracrlError, match=r"ran 30 steps without an end; .*--max-steps"):
        drive(EnvSpec("tiny_envs:Endless"))
    with pytest.raises(TracrlError, match="--max-steps is 0"):
        EnvSpec.of(EnvSpec("tiny_envs:Endless", max_steps=0))
