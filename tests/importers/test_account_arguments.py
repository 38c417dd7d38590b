"""Each public argument of the peers by itself, and many together: all are named, and what is written passes its check.

`arguments/*.yaml` list the names, from the peers' public signatures and schemas, with a value that is not the default.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import yaml
from rlinf_import import sb3_script
from rlinf_import.account import unaccounted
from rlinf_import.page import problems
from rlinf_import.reading import PEERS, imported, translated
from rlinf_import.refusal import NotOfferedError
from rlinf_import.sb3_tables import DEFAULTS
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet
from rlinf_import.written import Source

from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, get, locate, put

ARGUMENTS = Path(__file__).parent / "arguments"
TOGETHER = 60
"""Arguments that are imported with one another."""
EVALUATES = ("trainer.val_only", "runner.only_eval", "eval")
"""Arguments that make a file one of an evaluation."""
UNKNOWN = "nothing here is known of this key"
BASES: dict[str, dict[str, object]] = {
    "verl": {
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.model.path": "path/to/model",
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": 8,
        "trainer.n_gpus_per_node": 8,
    },
    "roll": {
        "adv_estimator": "grpo",
        "num_return_sequences_in_group": 8,
        "prompt_length": 256,
        "response_length": 256,
        "actor_train.device_mapping": "list(range(0,8))",
        "actor_infer.device_mapping": "list(range(0,8))",
        "actor_infer.strategy_args.strategy_name": "vllm",
        "rewards.math.worker_cls": "MathRuleRewardWorker",
    },
    "rlinf": {
        "runner.task_type": "embodied",
        "runner.max_epochs": 5,
        "algorithm.adv_type": "gae",
        "algorithm.loss_type": "actor_critic",
        "env.train.env_type": "maniskill",
        "env.train.init_params.id": "PickCube-v1",
        "env.train.total_num_envs": 8,
        "env.train.max_steps_per_rollout_epoch": 16,
        "actor.model.model_type": "mlp_policy",
    },
    "trl": {"trainer": "GRPOTrainer", "reward_funcs": ["accuracy_reward"], "dataset_name": "data"},
}
TEXT = {
    "runner.task_type": "reasoning",
    "runner.seq_length": 512,
    "data.max_prompt_length": 256,
    "algorithm.adv_type": "grpo",
    "algorithm.group_size": 8,
    "reward.reward_type": "math",
}
"""The base of RLinf's language models."""


@functools.cache
def arguments(peer: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((ARGUMENTS / f"{peer}.yaml").read_text())
    sections = {key.rpartition(".")[0] for key in found}
    named = {key: value for key, value in found.items() if key not in sections}
    return {key: "given" if value is None or value == [] or value == {} else value for key, value in named.items()}


def flat(peer: str, key: str) -> dict[str, object]:
    """What stands around an argument: RLinf's two kinds of runs have keys of their own."""
    texts = ("data.", "rollout.vllm", "rollout.sglang", "actor.model.recompute", "actor.megatron", "reward.tokenizer")
    return TEXT if peer == "rlinf" and key.startswith(texts) else BASES[peer]


def nested(values: dict[str, object]) -> dict[str, object]:
    tree: dict[str, object] = {}
    for key, value in values.items():
        branch = tree
        *sections, name = key.split(".")
        for section in sections:
            below = branch.setdefault(section, {})
            assert isinstance(below, dict)
            branch = below
        branch[name] = value
    return tree


def account(peer: str, key: str, value: object) -> Sheet | str:
    """The sheet of one argument among the base, or the sentence that refuses it."""
    tree: Branch = {}
    for name, given in ({**flat(peer, key), key: value}).items():
        put(tree, name, locate(given, Origin("peer.yaml", 1)))
    framework = PEERS[peer]
    try:
        return translated(framework, Source(Path("peer.yaml"), tree, []), Options(rows=64), framework.defaults)
    except NotOfferedError as error:
        return str(error)


@pytest.mark.parametrize("peer", list(BASES))
def test_each_argument_is_named(peer: str) -> None:
    wrong = []
    for key, value in arguments(peer).items():
        found = account(peer, key, value)
        if isinstance(found, str):
            if key.rpartition(".")[2] not in found:
                wrong.append(f"{key}: refused without its name: {found}")
        elif get(found.source.tree, key) is None:
            wrong.append(f"{key}: taken out")
        else:
            silent = set(unaccounted(found)) - set(flat(peer, key))
            unknown = [line for line in found.decide if UNKNOWN in line]
            wrong += [f"{key}: {words}" for words in (*silent, *unknown)]
    assert not wrong, "\n".join(wrong)


def together(peer: str, values: dict[str, object], base: dict[str, object], path: Path) -> Sheet:
    """The sheet of many arguments, without those that the others turn into a feature that does not exist here."""
    path.write_text(yaml.safe_dump(nested({**values, **base})))
    try:
        return imported(peer, path, (), Options(rows=64))
    except NotOfferedError as error:
        kept = {key: value for key, value in values.items() if f"{key}:" not in str(error)}
        if len(kept) == len(values):
            raise
        return together(peer, kept, base, path)


@pytest.mark.slow
@pytest.mark.parametrize("peer", list(BASES))
def test_many_arguments_together_pass_the_check(peer: str, tmp_path: Path) -> None:
    kept = {key: value for key, value in arguments(peer).items() if not isinstance(account(peer, key, value), str)}
    names = sorted(kept, key=lambda key: (flat(peer, key) is TEXT, key))
    for start in range(0, len(names), TOGETHER):
        chosen = names[start : start + TOGETHER]
        base = flat(peer, chosen[0])
        values = {key: kept[key] for key in chosen if flat(peer, key) is base and key not in EVALUATES}
        sheet = together(peer, values, base, tmp_path / f"{peer}_{start}.yaml")
        assert [str(found) for found in problems(sheet) if not about_files(found)] == []
        assert unaccounted(sheet) == []


def script(call: str, arguments: str) -> str:
    """A script that gives one call an argument."""
    makers = {
        "VecNormalize": "VecNormalize(env{})",
        "VecFrameStack": "VecFrameStack(env{})",
        "Monitor": "Monitor(env{})",
    }
    lines = ["env = make_vec_env('CartPole-v1'" + (f", {arguments}" if call == "make_vec_env" else "") + ")"]
    if call in makers:
        lines.append(f"env = {makers[call].format(f', {arguments}')}")
    if call.endswith("Callback"):
        lines.append(f"callback = {call}({arguments})")
    algorithm = call if call in ("PPO", "A2C", "SAC", "TD3", "DDPG", "TQC", "DQN") else "PPO"
    options = f", {arguments}" if call == algorithm and call != "learn" else ""
    if call == "policy_kwargs":
        options = f", policy_kwargs=dict({arguments})"
    lines.append(
        f"model = {algorithm}('MlpPolicy', env{options})" if call != "learn" else "model = PPO('MlpPolicy', env)"
    )
    lines.append(f"model.learn({arguments if call == 'learn' else '1000'})")
    return "\n".join(lines) + "\n"


def test_each_argument_of_stable_baselines3_is_named(tmp_path: Path) -> None:
    skipped = ("env", "venv", "policy", "env_id", "eval_env")
    wrong, path = [], tmp_path / "train.py"
    for key, value in arguments("sb3").items():
        call, _, name = key.partition(".")
        if name in skipped:
            continue
        given = [64, 32] if name == "net_arch" else value
        path.write_text(script(call, f"{name}={given!r}"))
        source, algorithm, environment = sb3_script.read(path, None)
        options = Options(algorithm=algorithm, environment=environment)
        try:
            sheet = translated(PEERS["sb3"], source, options, DEFAULTS[algorithm])
        except NotOfferedError as error:
            wrong += [] if name in str(error) or name == "activation_fn" else [f"{key}: {error}"]
            continue
        lines = [*sheet.ignored, *sheet.decide, *sheet.differs, *(s.cause for s in sheet.settings.values())]
        if not any(name in line for line in lines) or any(UNKNOWN in line for line in sheet.decide):
            wrong.append(key)
    assert not wrong, "\n".join(wrong)
