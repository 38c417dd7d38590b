"""`rlinf check` checks a simulator before training, and reports what it found in words."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from rlinf.cli import WRONG_CONFIG, main
from rlinf.commands import env_check
from rlinf.config import load
from rlinf.models.actor_critic import ActorCritic

ENV = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Env(gymnasium.Env):
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset({arguments}):
        super().reset(seed=seed)
        return {observation}, {{}}

    def step(self, action):
        self.steps = getattr(self, "steps", 0) + 1
        return {next_observation}, {reward}, {ends}, {{}}


gymnasium.register("{name}-v0", entry_point=Env)
"""
RECIPE = """
policy: {name: actor_critic}
algorithm: {adv_type: gae, loss_type: actor_critic}
env: {id: "%s"}
"""


def written(name: str, **changed: str) -> str:
    """The module of an environment that is sound but for what is ``changed``."""
    sound = dict.fromkeys(("observation", "next_observation"), "np.zeros(2, np.float32)")
    sound |= {"reward": "0.0", "ends": "False, False", "arguments": "self, *, seed=None, options=None"}
    return ENV.format(name=name, **{**sound, **changed})


def checked(folder: Path, env_id: str, *overrides: str) -> int:
    recipe = folder / "run.yaml"
    recipe.write_text(RECIPE % env_id)
    return main(["check", str(recipe), *overrides])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(env_check, "_PATIENCE_S", 0.05)
    return tmp_path


@pytest.mark.parametrize("key", ["env.reset_state_ids", "evaluation.reset_state_ids"])
def test_start_states_whose_numbers_are_not_read_are_reported(
    key: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % "CartPole-v1")
    assert main(["check", str(recipe), f"{key}=[0,1]"]) == WRONG_CONFIG
    assert "must read options['reset_state_id']" in " ".join(capsys.readouterr().out.split())
    local = ["cluster.backend=local", f"run.dir={own / 'out'}"]
    assert main(["train", str(recipe), f"{key}=[0,1]", *local]) == WRONG_CONFIG
    assert "must read options['reset_state_id']" in capsys.readouterr().err


def test_numbered_start_states_are_accepted(own: Path) -> None:
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % "rlinf_envs:rlinf/Tabletop-v0")
    text = "env.wrappers=[rlinf.rollouts.wrappers:TokenizeText]"
    assert main(["check", str(recipe), text, "env.reset_state_ids=[0,1]", "evaluation.reset_state_ids=[3,4]"]) == 0


@pytest.mark.parametrize(
    ("module", "changed", "words"),
    [
        ("halves", {"observation": "np.zeros(2, complex)"}, ["dtype complex128, the space has float32"]),
        (
            "wrong_shape",
            {"observation": "np.zeros(3, np.float32)"},
            ["The policy is built from the space", "shape (3,), the space has (2,)"],
        ),
        ("infinite", {"observation": "np.full(2, np.inf, np.float32)"}, ["2 of 2 numbers are not finite"]),
        ("no_reward", {"reward": "float('nan')"}, ["Such episodes are dropped and counted as env/nan"]),
        ("text_reward", {"reward": "'1.0'"}, ["the reward of step 1", "is a str, and must be a number"]),
        ("none_reward", {"reward": "None"}, ["is None, and must be a number", "step must return a plain number"]),
        (
            "fails_reset",
            {"observation": "{}['speed']"},
            ["reset(seed=123) with random actions raised KeyError: 'speed'"],
        ),
        ("leaves", {"reward": "exit(3)"}, ["random actions raised SystemExit: 3"]),
        ("ends_all", {"reward": "__import__('os')._exit(0)"}, ["random actions raised SystemExit: os._exit(0), at"]),
        (
            "no_options",
            {"arguments": "self, seed=None"},
            ["does not provide an `options`", "Write reset(self, *, seed=None, options=None)"],
        ),
        ("gives_up", {"reward": "1.0 / (self.steps % 20 - 19)"}, ["raised ZeroDivisionError", "drop the episode"]),
    ],
)
def test_a_broken_environment_is_explained(
    own: Path, capsys: pytest.CaptureFixture[str], module: str, changed: dict[str, str], words: list[str]
) -> None:
    (own / f"{module}.py").write_text(written(module, **changed))
    assert checked(own, f"{module}:{module}-v0") == WRONG_CONFIG
    output = capsys.readouterr().out
    assert [word for word in words if word not in output] == []
    sys.modules.pop(module)


@pytest.mark.parametrize(("options", "code"), [("default=1", 0), ("required=True", WRONG_CONFIG)])
def test_a_module_that_reads_the_command_line_has_none(
    own: Path, capsys: pytest.CaptureFixture[str], options: str, code: int
) -> None:
    name = f"parses_{code}"
    parsed = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--level', {options})\n"
    (own / f"{name}.py").write_text(f"{parsed}parser.parse_args()\n{written(name)}")
    assert checked(own, f"{name}:{name}-v0") == code
    assert ("it reads the command line when it is imported" in capsys.readouterr().out) == bool(code)
    sys.modules.pop(name, None)


def test_the_module_gym_is_gymnasium(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "dated.py").write_text("import gym\n")
    assert checked(own, "dated:Env") == WRONG_CONFIG
    assert "needs the module 'gym', which is not installed (gymnasium has replaced it" in capsys.readouterr().out


def test_a_reset_without_defaults_is_called_as_in_training(own: Path) -> None:
    (own / "strict.py").write_text(written("strict", arguments="self, seed, options"))
    assert checked(own, "strict:strict-v0") == 0
    sys.modules.pop("strict")


@pytest.mark.parametrize(("call", "part"), [("reset", "observation"), ("step", "reward")])
def test_an_environment_that_hangs_is_named(
    own: Path, capsys: pytest.CaptureFixture[str], call: str, part: str
) -> None:
    module = f"hangs_{call}"
    (own / f"{module}.py").write_text(written(module, **{part: "__import__('time').sleep(60)"}))
    assert checked(own, f"{module}:{module}-v0", "env.step_timeout_s=0.1") == WRONG_CONFIG
    output = capsys.readouterr().out
    assert f"{call} did not return within 0.1 s (env.step_timeout_s), at" in output
    assert f"{module}.py" in output
    sys.modules.pop(module)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["policy.distribution=beta"], "policy.distribution 'beta' does not fit Discrete(2)"),
        (["algorithm.loss_type=sac", "algorithm.adv_type=grpo"], "loss_type: sac needs continuous actions"),
        (["policy.encoder=cnn"], "policy.encoder: cnn reads images, and there is none"),
        (["env.wrappers=[DtypeObservation]"], "Arguments are given so: {DtypeObservation: {ARGUMENT: VALUE}}"),
        (["env.kwargs={size: 3}"], "env.kwargs do not fit the constructor"),
        (["evaluation.env_kwargs={size: 3}"], "env.kwargs do not fit the constructor"),
        (["algorithm.adv_type=reinforce", "algorithm.loss_type=actor"], "set env.max_episode_steps"),
    ],
)
def test_a_sound_one_that_its_run_does_not_fit_is_explained(
    own: Path, capsys: pytest.CaptureFixture[str], settings: list[str], words: str
) -> None:
    (own / "fitting.py").write_text(written("fitting"))
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % "fitting:fitting-v0")
    code = main(["check", str(recipe), *settings])
    assert words in capsys.readouterr().out
    assert code == (0 if "max_episode_steps" in words else WRONG_CONFIG)
    sys.modules.pop("fitting")


def test_what_is_not_finite_is_not_called_random_and_raises_are_reported_once(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "odd.py").write_text(written("odd", reward="float('nan')"))
    assert checked(own, "odd:odd-v0") == WRONG_CONFIG
    output = capsys.readouterr().out
    assert "nan: not finite" in output
    assert "not equivalent" not in output
    assert "Compare with gymnasium" not in output
    (own / "raising.py").write_text(written("raising", next_observation="1 / 0"))
    assert checked(own, "raising:raising-v0") == WRONG_CONFIG
    output = capsys.readouterr().out
    assert output.count("ZeroDivisionError") == 1
    assert re.search(r'raising\.py", line \d+, in step', output)
    for module in ("odd", "raising"):
        sys.modules.pop(module)


def test_spaces_that_are_not_there_and_names_that_are_near_are_named(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import gymnasium\nclass Walker(gymnasium.Env):\n    observation_space = gymnasium.spaces.Discrete(2)\n"
    (own / "spaceless.py").write_text(text)
    for env_id, words in {
        "spaceless:Walker": "has no action_space",
        "spaceless:Walkr": "(did you mean spaceless:Walker?)",
        "spaceles:Walker": "there is no module spaceles here (did you mean spaceless?)",
    }.items():
        assert checked(own, env_id) == WRONG_CONFIG
        assert words in "".join(capsys.readouterr())
    sys.modules.pop("spaceless")


def test_a_policy_part_that_raises_is_not_blamed_on_the_environment(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "parts.py").write_text(
        "from torch import nn\n\nclass Wide(nn.Module):\n    def __init__(self, space):\n"
        "        self.inner = nn.Linear(2, 2)\n"
    )
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % "CartPole-v1")
    assert main(["check", str(recipe), "policy.encoder=parts:Wide"]) == WRONG_CONFIG
    output = capsys.readouterr().out
    assert "! policy: it could not be made: AttributeError: cannot assign module before Module.__init__" in output
    assert "parts.py" in output
    sys.modules.pop("parts")


def test_an_exported_policy_of_another_environment_is_explained(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen, act = gymnasium.spaces.Box(-1, 1, (5,), np.float32), gymnasium.spaces.Discrete(2)
    ActorCritic(seen, act).save_pretrained(str(own / "export"))
    (own / "loading.py").write_text(written("loading"))
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % "loading:loading-v0")
    assert main(["check", str(recipe), f"policy.path={own / 'export'}"]) == WRONG_CONFIG
    output = " ".join(capsys.readouterr().out.split())
    assert "its observation space is Box(-1.0, 1.0, (5,), float32), and that of loading:loading-v0 is" in output
    sys.modules.pop("loading")


def test_a_module_next_to_the_file_is_found(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the console script is started: without the folder that one is in."""
    (own / "adjacent.py").write_text(written("adjacent"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(own))])
    assert checked(own, "adjacent:adjacent-v0") == 0
    (own / "importing.py").write_text("import a_module_that_is_missing")
    assert checked(own, "importing:Any-v0") == WRONG_CONFIG
    assert "needs the module 'a_module_that_is_missing', which is not installed" in capsys.readouterr().out
    sys.modules.pop("adjacent")


def test_wrappers_are_checked_too(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "wrapped.py").write_text(
        written("wrapped")
        + "\nclass Crop(gymnasium.ObservationWrapper):\n    def observation(self, seen):\n        return seen[:1]\n"
    )
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % "wrapped:wrapped-v0")
    assert main(["check", str(recipe), "env.wrappers=[{TimeLimit: {max_episode_steps: 5}}]"]) == 0
    assert main(["check", str(recipe), "env.wrappers=[wrapped:Crop]"]) == WRONG_CONFIG
    assert "shape (1,), the space has (2,)" in capsys.readouterr().out
    sys.modules.pop("wrapped")


def test_a_sound_one_passes(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "sound.py").write_text(written("sound"))
    assert checked(own, "sound:sound-v0", "env.max_episode_steps=50") == 0
    assert "! environment" not in capsys.readouterr().out
    assert checked(own, "CartPole-v1") == 0


@pytest.mark.parametrize(
    ("module", "changed", "words"),
    [
        ("own_noise", {"observation": "np.random.uniform(-1, 1, 2).astype(np.float32)"}, "reset(seed=123)` is non-det"),
        (
            "drifts",
            {"next_observation": "np.full(2, 1 - 1 / (1 + self.steps), np.float32)"},
            "two trajectories are not equivalent for the same seed",
        ),
    ],
)
def test_episodes_that_do_not_repeat_are_named_and_train(
    own: Path, capsys: pytest.CaptureFixture[str], module: str, changed: dict[str, str], words: str
) -> None:
    (own / f"{module}.py").write_text(written(module, **changed))
    assert checked(own, f"{module}:{module}-v0") == 0
    output = capsys.readouterr().out
    assert words in output
    assert "Training runs. Without episodes that repeat, groups have no common start" in output
    sys.modules.pop(module)


@pytest.mark.parametrize(
    ("module", "changed", "words"),
    [
        ("outside_space", {"observation": "np.full(2, 9.0, np.float32)"}, "2 of 2 numbers are out of bounds"),
        ("leaves_later", {"next_observation": "np.full(2, self.steps * 0.05, np.float32)"}, "for example 1.0"),
    ],
)
def test_numbers_beyond_their_bounds_are_named_and_train(
    own: Path, capsys: pytest.CaptureFixture[str], module: str, changed: dict[str, str], words: str
) -> None:
    (own / f"{module}.py").write_text(written(module, **changed))
    assert checked(own, f"{module}:{module}-v0") == 0
    output = capsys.readouterr().out
    assert words in output
    assert "Training reads no bounds of such numbers, and takes them as they are" in output
    sys.modules.pop(module)


def test_digits_that_float16_loses_are_named(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = written("halved", observation="np.full(2, 0.123456789)").replace("np.float32)\n", "np.float16)\n")
    (own / "halved.py").write_text(text)
    assert checked(own, "halved:halved-v0") == 0
    output = capsys.readouterr().out
    assert "observation is float64, and is rounded to float16\n  Three digits stay" in output
    sys.modules.pop("halved")


@pytest.mark.parametrize("repeats", [True, False])
def test_training_notes_evaluations_that_begin_elsewhere(
    own: Path, capsys: pytest.CaptureFixture[str], repeats: bool
) -> None:
    module = f"starts_{repeats}"
    generator = "self.np_random" if repeats else "np.random"
    start = f"{generator}.uniform(-1, 1, 2).astype(np.float32)"
    (own / f"{module}.py").write_text(written(module, observation=start, ends="True, False"))
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % f"{module}:{module}-v0")
    short = ["run.max_steps=1", "env.num_envs=2", "rollout.num_steps=2", "evaluation.size=2"]
    local = ["cluster.backend=local", f"run.dir={own / module}"]
    assert main(["train", str(recipe), *short, *local]) == 0
    output = capsys.readouterr()
    noted = "evaluations begin with other observations each time" in " ".join((output.out + output.err).split())
    assert noted is not repeats
    sys.modules.pop(module)


def test_a_generator_of_its_own_that_follows_the_seed_is_as_good(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draws = "np.random.default_rng(seed).uniform(-1, 1, 2).astype(np.float32)"
    text = written("own_generator", observation=draws).replace("super().reset(seed=seed)", "pass")
    (own / "own_generator.py").write_text(text)
    assert checked(own, "own_generator:own_generator-v0") == 0
    assert "super().reset" not in capsys.readouterr().out
    sys.modules.pop("own_generator")


def test_options_that_training_does_not_pass_may_be_refused(own: Path) -> None:
    refuses = "np.zeros(2, np.float32) if options is None else 1 / 0"
    (own / "optionless.py").write_text(written("optionless", observation=refuses))
    assert checked(own, "optionless:optionless-v0") == 0
    sys.modules.pop("optionless")


def test_starts_that_repeat_only_with_a_seed_are_enough(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = "np.full(2, np.random.random() if seed is None else self.np_random.random(), np.float32)"
    (own / "seeded.py").write_text(written("seeded", observation=noise))
    assert checked(own, "seeded:seeded-v0") == 0
    assert "Harmless: every episode here starts with a seed of its own." in capsys.readouterr().out
    sys.modules.pop("seeded")


def test_an_unregistered_id_is_refused(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(own, "CartPoel-v1") == WRONG_CONFIG
    assert "is not registered" in capsys.readouterr().out


def test_an_isolated_one_is_checked_where_it_lives(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "elsewhere.py").write_text(written("elsewhere", reward="float('inf')"))
    recipe = own / "run.yaml"
    recipe.write_text(RECIPE % "elsewhere:elsewhere-v0")
    assert main(["check", str(recipe), "env.isolation=process"]) == WRONG_CONFIG
    assert "Such episodes are dropped" in capsys.readouterr().out
    assert "elsewhere" not in sys.modules
    (own / "elsewhere.py").write_text("import a_module_that_is_missing")
    assert main(["check", str(recipe), "env.isolation=process"]) == WRONG_CONFIG
    assert "a_module_that_is_missing" in capsys.readouterr().out


LONG = """
import gymnasium


class Circle(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        self.steps += 1
        return 0, 0.0, self.steps % 1500 == 0, False, {}


gymnasium.register("circle-v0", entry_point=Circle)
gymnasium.register("limited-v0", entry_point=Circle, max_episode_steps=5000)
"""


def test_long_episodes_without_a_limit_are_named_where_evaluations_run_them(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_check, "_PATIENCE_S", 60.0)
    (own / "circle.py").write_text(LONG)
    assert checked(own, "circle:circle-v0") == 0
    assert "lasted 1," in capsys.readouterr().out
    assert checked(own, "circle:limited-v0") == 0
    assert "time limit" not in capsys.readouterr().out
    assert main(["check", str(own / "run.yaml"), "env.id=circle:circle-v0", "evaluation.size=0"]) == 0
    assert "time limit" not in capsys.readouterr().out


def test_a_missing_extra_is_a_wrong_configuration(
    own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlinf.config.extras.installed", lambda module: module != "Box2D")
    assert checked(own, "BipedalWalker-v3") == WRONG_CONFIG
    assert "extra box2d is missing" in capsys.readouterr().out
    assert main(["check", "--no-build", str(own / "run.yaml")]) == 0


FOREIGN = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Pettish:
    def observation_space(self, agent): ...


def parallel_env(**kwargs):
    return Pettish()


class Legacy:
    def __init__(self, size=3): ...


def make_legacy(size=3):
    return Legacy(size)


class Masked(gymnasium.Env):
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {"action_mask": np.ones(2, np.int8)}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {"action_mask": np.ones(2, np.int8)}
"""


@pytest.mark.parametrize("name", ["parallel_env", "Legacy", "make_legacy"])
def test_an_object_of_another_library_is_named_as_such(
    own: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (own / "foreign_envs.py").write_text(FOREIGN)
    assert checked(own, f"foreign_envs:{name}") == WRONG_CONFIG
    words = " ".join(capsys.readouterr().out.split())
    assert "is no gymnasium environment. Derive the class from gymnasium.Env" in words
    assert "env.kwargs do not fit" not in words


def test_a_reward_in_an_array_is_remarked_and_read(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "array_reward.py").write_text(written("array_reward", reward="np.ones(1)"))
    assert checked(own, "array_reward:array_reward-v0") == 0
    assert "step must return a plain number as reward" in capsys.readouterr().out
    sys.modules.pop("array_reward")


@pytest.mark.parametrize(
    ("module", "changed", "remark"),
    [
        ("double", {"observation": "np.zeros(2)"}, "observation is float64, and is read as float32"),
        ("listed", {"observation": "[0, 0]"}, "observation is a list, and is read as float32"),
        ("tensors", {"observation": "__import__('torch').zeros(2)"}, "observation is a Tensor, and is read as float32"),
        ("reused", {"observation": "self.same(self.np_random.random())", "next_observation": "self.same(0.5)"}, ""),
    ],
)
def test_what_training_reads_passes(
    own: Path, capsys: pytest.CaptureFixture[str], module: str, changed: dict[str, str], remark: str
) -> None:
    same = "    array = np.zeros(2, np.float32)\n    def same(self, x):\n        self.array[:] = x\n"
    same += "        return self.array\n"
    (own / f"{module}.py").write_text(written(module, **changed).replace("    def reset", f"{same}    def reset"))
    assert checked(own, f"{module}:{module}-v0") == 0
    output = capsys.readouterr().out
    assert remark in output
    assert "Harmless: no value changes" in output or not remark
    sys.modules.pop(module)


def test_an_info_of_none_is_empty(own: Path) -> None:
    (own / "mute.py").write_text(written("mute").replace("{}", "None"))
    assert checked(own, "mute:mute-v0") == 0
    sys.modules.pop("mute")


@pytest.mark.parametrize(
    ("module", "changed", "words"),
    [
        ("loud", {"reward": "1e39"}, "the reward of step 1 after reset(seed=123) is 1e+39: not finite"),
        ("vast", {"observation": "np.array([1e300, 0])"}, "has 1e+300: not finite in float32"),
    ],
)
def test_what_float32_does_not_hold_is_named(
    own: Path, capsys: pytest.CaptureFixture[str], module: str, changed: dict[str, str], words: str
) -> None:
    unbounded = written(module, **changed).replace(
        "spaces.Box(-1.0, 1.0, (2,), np.float32)", "spaces.Box(-np.inf, np.inf, (2,), np.float64)"
    )
    (own / f"{module}.py").write_text(unbounded)
    assert checked(own, f"{module}:{module}-v0") == WRONG_CONFIG
    assert words in capsys.readouterr().out
    sys.modules.pop(module)


def test_flags_of_numpy_and_numbers_are_flags(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "odd_flags.py").write_text(written("odd_flags", ends="0, np.bool_(False)"))
    assert checked(own, "odd_flags:odd_flags-v0") == 0
    output = capsys.readouterr().out
    assert "numbers count as flags" in output
    assert "truncates after 1 step" not in output
    (own / "one_step.py").write_text(written("one_step", ends="False, np.bool_(True)"))
    assert checked(own, "one_step:one_step-v0") == WRONG_CONFIG
    assert "truncates after 1 step" in capsys.readouterr().out


def test_features_that_are_not_read_are_remarked(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "foreign_envs.py").write_text(FOREIGN)
    assert checked(own, "foreign_envs:Masked") == 0
    assert "Set env.action_mask to their name" in " ".join(capsys.readouterr().out.split())
    assert checked(own, "foreign_envs:Masked", "env.action_mask=action_mask") == 0
    assert "mask" not in capsys.readouterr().out.partition("Environment")[2]
    recipe = Path(env_check.__file__).parents[2] / "config" / "sim" / "cartpole_dqn.yaml"
    goals = {"observation.achieved_goal", "observation.desired_goal"}
    found = env_check._unlabelled_goals(load(recipe), goals)
    assert "set algorithm.hindsight: future" in found[0].meaning
    assert env_check._unlabelled_goals(load(recipe), {"observation"}) == []


@pytest.mark.parametrize(("key", "code"), [("is_success", 0), ("success", WRONG_CONFIG)])
def test_a_metric_of_success_that_no_info_reports_is_refused(
    key: str, code: int, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = written("NoSuccess", ends="True, False").replace("True, False, {}", "True, False, {'is_success': False}")
    (own / "no_success.py").write_text(module)
    metric = ["checkpoint.best_metric=eval/success_once", f"env.success_key={key}"]
    assert checked(own, "no_success:NoSuccess-v0", *metric) == code
    text = " ".join(capsys.readouterr().out.split())
    assert ("set env.success_key: is_success Training stops at the first evaluation" in text) == (code != 0)
    assert checked(own, "no_success:NoSuccess-v0", metric[1]) == 0
    assert ("set env.success_key: is_success" in capsys.readouterr().out) == (code != 0)
    assert checked(own, "CartPole-v1") == 0
    assert "env.success_key" not in capsys.readouterr().out


def test_actions_without_bounds_are_explained_as_actions(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = written("Free", ends="True, False").replace("spaces.Discrete(2)", "spaces.Box(-np.inf, np.inf, (2,))")
    (own / "free.py").write_text(module)
    assert checked(own, "free:Free-v0") == 0
    text = capsys.readouterr().out
    assert "need finite bounds" in text
    assert "env.normalize_observations" not in text


def test_a_step_that_fails_late_is_no_construction_that_fails(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "late.py").write_text(written("Late", reward="1.0 / (self.steps < 500)"))
    assert checked(own, "late:Late-v0") == WRONG_CONFIG
    text = " ".join(capsys.readouterr().out.split())
    assert "step 500 of a random episode raised ZeroDivisionError" in text
    assert "could not be made" not in text


GRAPH = "spaces.Graph(spaces.Box(-1.0, 1.0, (2,), np.float32), None)"
MEMBER = "spaces.GraphInstance(np.zeros((3, 2), np.float32), None, None)"
FLATTENED = """

class First(gymnasium.ObservationWrapper):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observation(self, observation):
        return observation.nodes[0]
"""


@pytest.mark.parametrize(
    ("space", "member", "words"),
    [
        (GRAPH, MEMBER, "observation: observations of type Graph have no fixed shape"),
        (f"spaces.Dict(a={GRAPH})", f"{{'a': {MEMBER}}}", "observation.a: observations of type Graph have no"),
        ("spaces.Sequence(spaces.Discrete(2))", "(0, 1)", "observation: observations of type Sequence have no"),
        (
            "spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3)))",
            "(np.int64(1), np.int64(2))",
            "of type OneOf have no",
        ),
    ],
)
def test_an_observation_without_a_fixed_shape_is_named_by_its_kind(
    own: Path, capsys: pytest.CaptureFixture[str], space: str, member: str, words: str
) -> None:
    text = written("shapeless", observation=member, next_observation=member)
    text = text.replace("observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)", f"observation_space = {space}")
    (own / "shapeless.py").write_text(text.replace("\n\ngymnasium.register", f"{FLATTENED}\n\ngymnasium.register"))
    assert checked(own, "shapeless:shapeless-v0") == 2
    output = capsys.readouterr().out
    assert words in output
    assert "Read are Box, Discrete, MultiDiscrete, MultiBinary, Text, and Dict and Tuple of them" in output
    assert "is no member" not in output
    if space == GRAPH:  # a wrapper makes it one that is read
        assert checked(own, "shapeless:shapeless-v0", "env.wrappers=[shapeless:First]") == 0, capsys.readouterr()
    sys.modules.pop("shapeless")


def test_an_id_without_a_version_is_named_with_the_one_that_is_made(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(own, "Pendulum") == 0
    assert "env.id: Pendulum names no version, and Pendulum-v1 is made." in capsys.readouterr().out
    assert checked(own, "Pendulum-v1") == 0
    assert "names no version" not in capsys.readouterr().out
