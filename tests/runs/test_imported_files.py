"""Files of other frameworks, imported and scaled down by words of the command line, train on the default backend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_runs import logged

from rlinf.cli import main

pytestmark = pytest.mark.usefixtures("ray_session")
PEERS = Path(__file__).parents[1] / "importers" / "peers"
TOWER = "hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2"
DECODER = f"{{model_type: qwen2, {TOWER}, num_key_value_heads: 2}}"
QUIET = ["logging.progress=none", "logging.tensorboard=false", "logging.wandb_project=null"]


def trained(folder: Path, peer: str, name: str, words: list[str], *options: str) -> list[dict[str, float]]:
    """Import a file by its command, train what was written, and return its metrics by training iteration."""
    file = folder / "imported.yaml"
    assert main(["import", peer, str(PEERS / name), *options, "-o", str(file)]) == 0
    assert "cluster.backend" not in file.read_text()
    assert main(["train", str(file), f"run.dir={folder / 'run'}", *words, *QUIET]) == 0
    assert json.loads((folder / "run" / "summary.json").read_text())["status"] == "completed"
    return [line for line in logged(folder / "run") if "train/grad_norm" in line]


@pytest.mark.slow
def test_a_script_of_verl_on_mathematics(tmp_path: Path) -> None:
    """GRPO with a reference policy, 6 responses for each of 4 prompts, in 4 minibatches as the script has it."""
    data = tmp_path / "sums.jsonl"
    rows = [{"question": f"What is {n} + 3?", "answer": str(n + 3)} for n in range(16)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "run.max_steps=2",
        f"env.kwargs.path={data}",
        f"evaluation.env_kwargs.path={data}",
        "evaluation.size=4",
        # A model this small is never right: what distinguishes its responses, and gives a gradient, is a letter.
        "env.kwargs.reward={format: {weight: 1.0, pattern: '[A-Z]'}}",
        "data.max_prompt_length=64",
        "policy.path=null",
        f"policy.architecture={DECODER}",
        "policy.tokenizer.vocab_size=300",
        "rollout.sampler=hf",
        "rollout.vllm=null",
        "rollout.num_samplers=1",
        "rollout.batch_size=4",
        "rollout.max_new_tokens=6",
        "learner.backend=torch",
        "learner.num_workers=1",
        "learner.optimizer.lr=0.01",
    ]
    first, last = trained(tmp_path, "verl", "verl_grpo.sh", words, "--rows", "7500")
    assert first["train/grad_norm"] > 0
    assert last["train/kl_ref"] > first["train/kl_ref"] > 0  # each minibatch moves away from the reference


@pytest.mark.slow
def test_an_entry_of_the_zoo(tmp_path: Path) -> None:
    """PPO on CartPole: 8 environments of 32 steps, 20 passes over one minibatch, as the entry has it."""
    words = ["run.max_steps=2", "evaluation.size=4"]
    first, last = trained(tmp_path, "sb3", "zoo_ppo.yml", words, "--env", "CartPole-v1")
    assert (first["rollout/env_steps"], last["rollout/env_steps_total"]) == (256, 512)
    assert first["train/value_loss"] > 0
    assert last["train/lr"] < first["train/lr"] < 1e-3  # the entry's rate falls


@pytest.mark.slow
def test_rlinf_s_policy_of_states_in_another_simulator(tmp_path: Path) -> None:
    """Its PPO of ManiSkill's PickCube, with a simulator that is always installed instead."""
    words = [
        "run.max_steps=2",
        "env.id=Pendulum-v1",
        "env.kwargs=null",
        "env.num_envs=4",
        "env.max_episode_steps=20",
        "rollout.num_steps=20",
        "evaluation={size: 2, num_envs: 2, env_kwargs: null}",
    ]
    lines = trained(tmp_path, "rlinf", "rlinf_embodied.yaml", words)
    assert [line["rollout/env_steps"] for line in lines] == [80, 80]
    assert all(line["train/grad_norm"] > 0 and line["train/value_loss"] > 0 for line in lines)


@pytest.mark.sim
def test_rlinf_s_many_tasks_of_metaworld(tmp_path: Path) -> None:
    """Its GRPO of a vision-language-action model over MT50: two of the tasks, seen through the camera."""
    pytest.importorskip("metaworld")
    words = [
        "run.max_steps=2",
        "env.tasks=[{kwargs: {task: reach-v3}}, {kwargs: {task: push-v3}}]",
        "env.num_envs=2",
        "env.kwargs={camera: corner2, image_size: 32, max_steps: 4, reward_mode: dense, end_on_success: true}",
        "env.max_episode_steps=4",
        "policy.vla.language.path=null",
        f"policy.vla.language.architecture={DECODER}",
        f"policy.vla.vision.architecture={{model_type: siglip_vision_model, {TOWER}, patch_size: 8, image_size: 32, "
        "vision_use_head: false}",
        "policy.vla.action_statistics=null",
        "policy.vla.statistics_key=null",
        "rollout.batch_size=2",
        "algorithm={group_size: 2, num_minibatches: 1, filter_rewards: false, rewards_lower_bound: null, "
        "rewards_upper_bound: null}",
        "evaluation={size: 2, num_envs: 2}",
    ]
    lines = trained(tmp_path, "rlinf", "rlinf_metaworld.yaml", words)
    assert lines[0]["train/grad_norm"] > 0
    assert {"rollout/success_once/reach-v3", "rollout/success_once/push-v3"} <= set(lines[0])
