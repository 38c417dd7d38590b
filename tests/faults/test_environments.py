"""Whatever an environment is or does: it is trained on, or refused in a paragraph that names what went wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import env_zoo
import pytest
import torch
from simulator_config import simulator_config
from worker_group import InThisProcess

from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.rollout import VectorRollout
from rlinf.schema import ClusterConfig, EnvConfig

SOUND = ["terminates at once", "never ends", "odd infos", "observations outside the space", "prints", "close() raises"]
# The wrong words of an environment, in ours.
REPORTED = {
    "raises in step": r"RuntimeError: no such joint, at\n  File .*env_zoo\.py.*in step",
    "raises in reset": r"RuntimeError: no such scene, at\n  File .*env_zoo\.py.*in reset",
    "raises in __init__": r"could not be constructed: RuntimeError: no such robot, at\n  File .*env_zoo\.py",
    "hangs in __init__": r"no environment within 0\.1 s \(cluster\.start_timeout_s\), at\n  File .*time\.sleep",
    "hangs in step": r"no answer within 0\.1 s \(env\.step_timeout_s\), at\n  File .*time\.sleep",
    "hangs in reset": r"no answer within 0\.1 s \(env\.step_timeout_s\), at\n  File .*time\.sleep",
    "sys.exit": r"SystemExit: 3, at\n  File .*sys\.exit",
    "4-tuple": r"step\(\) returned 4 values instead of the 5 of gymnasium's interface",
    "reset without info": r"reset\(\) returned ndarray instead of the 2 of gymnasium's interface",
    "NaN obs": r"an observation with observation\[0\] = nan",
    "wrong shape": r"observation has shape \(2,\): the observation space has \(3,\)",
    "None obs": r"observation has shape \(\)",
    "obs of words": r"observation",
    "obs 1e38": r"an observation whose sum overflows",
    "NaN reward": r"the reward nan",
    "inf reward": r"the reward inf",
    "huge reward": r"the reward 1e\+39",
    "None reward": r"step\(\) returned the reward None, which is not a number",
    "array reward": r"step\(\) returned the reward array\(\[0\., 0\.\]\), which is not a number",
    "string reward": r"step\(\) returned the reward 'much', which is not a number",
}


def build_policy(*given: object) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(*given, ActorCriticOptions(hidden_sizes=(8,)))  # type: ignore[arg-type]


def rollout(case: str, timeout_s: float = 60.0) -> VectorRollout:
    env = EnvConfig(
        env_zoo.ID,
        {"case": case},
        vectorization="sync",
        step_timeout_s=timeout_s,
        max_failures=1,
    )
    config = simulator_config(env, num_steps=7)
    config = replace(config, cluster=ClusterConfig(start_timeout_s=timeout_s))
    return VectorRollout(InThisProcess([EnvWorker(config.collection, range(2), build_policy)]), config.collection)


@pytest.mark.parametrize("case", [*env_zoo.OBSERVATIONS, *env_zoo.ACTIONS, *SOUND])
def test_it_is_trained_on(case: str) -> None:
    it = rollout(case)
    batch, metrics = it.collect(0)
    assert batch.mask.all()
    assert torch.isfinite(batch.rollout_logprobs).all()
    assert metrics["env/failures"] == 0
    if case != "never ends":
        assert len(it.evaluate(2).records) == 2


@pytest.mark.parametrize("case", env_zoo.REFUSED)
def test_spaces_without_a_fixed_size_are_refused_with_advice(case: str) -> None:
    with pytest.raises(UserError) as raised:
        rollout(case).collect(0)
    assert "\n" not in str(raised.value)
    assert re.search("wrapper|policy|space|act", str(raised.value))


@pytest.mark.parametrize("case", REPORTED)
def test_what_went_wrong_is_reported_first_and_shortly(case: str) -> None:
    with pytest.raises(UserError, match=f"(?s){REPORTED[case]}") as raised:
        rollout(case, timeout_s=0.1 if "hangs" in case else 60.0).collect(0)
    words = str(raised.value)
    assert "Zoo-v0" in words.splitlines()[0]
    assert len(words.splitlines()) <= 14
    assert "rlinf/rollouts" not in words, "frames of ours do not help the environment's author"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("raises in step", "RuntimeError: no such joint"),
        ("wide reward", "the weights were left as they were. Usual reasons"),
    ],
)
def test_the_terminal_shows_one_paragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, words: str
) -> None:
    given = [f"env.id={env_zoo.ID}", f"env.kwargs={{case: {case}}}", "env.num_envs=2", "rollout.num_steps=4"]
    algorithm = ["algorithm.adv_type=gae", "algorithm.loss_type=actor_critic", "policy.name=actor_critic"]
    file = tmp_path / "zoo.yaml"
    file.write_text("{}\n")
    more = ["cluster.backend=local", f"run.dir={tmp_path / 'run'}", "logging.progress=none", "evaluation.size=0"]
    assert main(["train", str(file), *given, *algorithm, *more]) != 0
    output = "".join(capsys.readouterr())
    assert words in output
    assert "Traceback" not in output
