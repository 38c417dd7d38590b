"""On the same inputs the losses are those that TRL publishes, and GAE is that of Stable-Baselines3, to 1e-5."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlinf.algorithms import compute_advantages, policy_loss

pytestmark = pytest.mark.peers
close = torch.testing.assert_close
LENGTH = 9
BETA = 0.04


class OneProcess:
    """As much of an accelerator as TRL's loss uses."""

    num_processes = 1

    def gather(self, tensor):
        return tensor

    def reduce(self, tensor, reduction):
        return tensor


def columns(seed):
    g = torch.Generator().manual_seed(seed)
    mask = (torch.arange(7) < torch.tensor([7, 3, 5, 1])[:, None]).bool()
    old = -3 * torch.rand(4, 7, generator=g)
    return {
        "old_logprobs": old,
        "logprobs": old + 0.4 * torch.randn(4, 7, generator=g),
        "ref_logprobs": old + 0.4 * torch.randn(4, 7, generator=g),
        "advantages": torch.randn(4, 1, generator=g).expand(4, 7).contiguous(),
        "mask": mask,
    }


def trl_loss(loss_type, data, logprobs, *, level="token", epsilon_high=0.28, beta=BETA):
    """``GRPOTrainer._compute_loss`` with the model's forward pass replaced by given log-probabilities."""
    from trl import GRPOTrainer

    entropy = torch.zeros_like(logprobs)
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logprobs, entropy, None),
        model=SimpleNamespace(training=True),
        accelerator=OneProcess(),
        args=SimpleNamespace(
            delta=None,
            use_bias_correction_kl=False,
            steps_per_generation=1,
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
        ),
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=0.2,
        epsilon_high=epsilon_high,
        beta=beta,
        max_completion_length=LENGTH,
        current_gradient_accumulation_steps=1,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    mask = data["mask"].long()
    inputs = {
        "prompt_ids": torch.zeros(4, 1, dtype=torch.int64),
        "prompt_mask": torch.ones(4, 1, dtype=torch.int64),
        "completion_ids": torch.zeros_like(mask),
        "completion_mask": mask,
        "advantages": data["advantages"][:, 0],
        "old_per_token_logps": data["old_logprobs"],
        "ref_per_token_logps": data["ref_logprobs"],
        "num_items_in_batch": mask.sum(),
    }
    return GRPOTrainer._compute_loss(trainer, trainer.model, inputs)


CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
PAIRS = {
    "grpo": ("actor", "seq-mean-token-mean", CLIP, {}),
    "dr_grpo": ("actor", "seq-mean-token-sum-norm", {**CLIP, "max_response_length": LENGTH}, {}),
    "dapo": ("actor", "token-mean", CLIP, {}),
    "bnpo": ("actor", "token-mean", CLIP, {}),
    # TRL's epsilon_high is the cap itself, and there is none below
    "cispo": ("cispo", "token-mean", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.3}, {"epsilon_high": 1.3}),
    "sapo": ("sapo", "seq-mean-token-mean", {}, {}),
    "gspo": ("gspo", "seq-mean-token-mean", CLIP, {"loss_type": "grpo", "level": "sequence"}),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_those_of_trl(name, seed):
    loss_type, aggregation, ours, theirs = PAIRS[name]
    data = columns(seed)
    logprobs = data["logprobs"].requires_grad_()
    mine, _ = policy_loss(loss_type, **data, loss_agg_func=aggregation, kl_beta=BETA, **ours)
    peer = trl_loss(data=data, logprobs=logprobs, **{"loss_type": name, **theirs})
    close(mine, peer, atol=1e-5, rtol=1e-5)
    gradients = [torch.autograd.grad(loss, logprobs)[0] for loss in (mine, peer)]
    close(*gradients, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_gae_is_that_of_stable_baselines3(seed):
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import RolloutBuffer

    steps, envs, gamma, gae_lambda = 12, 3, 0.97, 0.9
    random = np.random.default_rng(seed)
    buffer = RolloutBuffer(steps, Box(-1, 1, (1,)), Discrete(2), "cpu", gae_lambda, gamma, n_envs=envs)
    buffer.rewards = random.normal(size=(steps, envs)).astype(np.float32)
    buffer.values = random.normal(size=(steps, envs)).astype(np.float32)
    ends = random.random((steps, envs)) < 0.25
    buffer.episode_starts = np.concatenate([np.ones((1, envs)), ends[:-1]]).astype(np.float32)
    last_values = torch.tensor(random.normal(size=envs), dtype=torch.float32)
    buffer.compute_returns_and_advantage(last_values, ends[-1])

    bootstrap = torch.zeros(envs, steps)
    bootstrap[:, -1] = last_values
    found = compute_advantages(
        "gae",
        rewards=torch.tensor(buffer.rewards.T),
        mask=torch.ones(envs, steps, dtype=torch.bool),
        group_ids=torch.arange(envs),
        values=torch.tensor(buffer.values.T),
        terminated=torch.tensor(ends.T),
        bootstrap_values=bootstrap,
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    close(found.advantages, torch.tensor(buffer.advantages.T), atol=1e-5, rtol=1e-5)
    close(found.returns, torch.tensor(buffer.returns.T), atol=1e-5, rtol=1e-5)


def sb3_weights(model):
    """The parameters of Stable-Baselines3's MlpPolicy under the names that they have in `ActorCritic`."""
    ours = {
        "mlp_extractor.policy_net": "actor_body",
        "mlp_extractor.value_net": "critic_body",
        "action_net": "head.logits",
        "value_net": "value_head",
    }
    found = {}
    for name, tensor in model.policy.state_dict().items():
        part = next(theirs for theirs in ours if name.startswith(f"{theirs}."))
        found[ours[part] + name.removeprefix(part)] = tensor.clone()
    return found


def sb3_batch(buffer, *, whitened):
    """A rollout buffer as our learner has it after its preparation."""
    from rlinf.algorithms.statistics import whiten
    from rlinf.data.batch import Batch
    from rlinf.data.inputs import named_inputs

    def rows(column):
        return torch.as_tensor(column).transpose(0, 1).contiguous()

    advantages, mask = rows(buffer.advantages), rows(buffer.advantages) == rows(buffer.advantages)
    count = len(mask)
    return Batch(
        inputs=named_inputs({"observation": rows(buffer.observations).float()}),
        actions=rows(buffer.actions)[..., 0].long(),
        mask=mask,
        rollout_logprobs=rows(buffer.log_probs),
        old_logprobs=rows(buffer.log_probs),
        old_values=rows(buffer.values),
        rewards=torch.zeros(count),
        group_ids=torch.arange(count),
        policy_version=torch.zeros(mask.shape, dtype=torch.int32),
        advantages=whiten(advantages, mask).float() if whitened else advantages,
        returns=rows(buffer.returns),
    )


@pytest.mark.parametrize("kind", ["ppo", "a2c"])
def test_iterations_of_an_imported_entry_are_those_of_stable_baselines3(kind, tmp_path):
    """From the same weights and rollouts, four iterations with all epochs: loss, clipping, optimiser, schedule."""
    import stable_baselines3
    from rlinf_import.page import page
    from rlinf_import.reading import imported
    from rlinf_import.sheet import Options
    from stable_baselines3.common.callbacks import CallbackList
    from stable_baselines3.common.env_util import make_vec_env

    from rlinf.config import load
    from rlinf.learners.torch import TorchLearner
    from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
    from rlinf.train.assemble.stages import stages_of

    envs, steps, iterations = 4, 16, 4
    whole = envs * steps
    more = {"batch_size": whole, "n_epochs": 5, "ent_coef": 0.01} if kind == "ppo" else {"ent_coef": 0.01}
    written = {"n_envs": envs, "n_timesteps": iterations * whole, "policy": "MlpPolicy", "n_steps": steps, **more}
    (tmp_path / f"{kind}.yml").write_text(
        "CartPole-v1:\n" + "".join(f"  {name}: {value}\n" for name, value in written.items())
    )
    (tmp_path / "entry.yaml").write_text(
        page(imported("sb3", tmp_path / f"{kind}.yml", (), Options(environment="CartPole-v1")))
    )
    config = load(tmp_path / "entry.yaml")
    model = getattr(stable_baselines3, kind.upper())(
        "MlpPolicy", make_vec_env("CartPole-v1", n_envs=envs, seed=0), n_steps=steps, seed=0, device="cpu", **more
    )
    policy = ActorCritic(
        model.observation_space, model.action_space, ActorCriticOptions(tuple(config.policy.hidden_sizes))
    )
    policy.load_state_dict(sb3_weights(model))
    learner = TorchLearner(policy, stages=stages_of(config), seed=0, micro_batch_tokens=4096)
    _, callback = model._setup_learn(iterations * whole, CallbackList([]))
    for step in range(iterations):
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=steps)
        batch = sb3_batch(model.rollout_buffer, whitened=kind == "ppo")
        model.train()
        learner.update(batch, step=step)
        for name, tensor in sb3_weights(model).items():
            close(policy.state_dict()[name], tensor, atol=2e-5, rtol=0)


def sb3_parts(model, kind):
    """Networks and targets of Stable-Baselines3's model, in the order of those of ours."""
    actor, target = model.actor, model.critic_target
    if kind == "sac":
        heads = zip(actor.mu.parameters(), actor.log_std.parameters(), strict=True)
        acting = [*actor.latent_pi.parameters(), *(torch.cat(pair) for pair in heads)]
        return acting, list(model.critic.parameters()), list(target.parameters())
    following = [*model.actor_target.parameters(), *target.parameters()]
    return list(actor.parameters()), list(model.critic.parameters()), following


def as_ours(theirs, like):
    """A parameter as it lies in ours, whose first layers are transposed."""
    return theirs.detach() if theirs.shape == like.shape else theirs.detach().T


@pytest.mark.parametrize("kind", ["td3", "ddpg", "sac"])
def test_replayed_updates_of_an_imported_entry_are_those_of_stable_baselines3(kind, tmp_path, monkeypatch):
    """From the same weights, transitions and noise: losses, optimisers, delays, targets."""
    import gymnasium
    import stable_baselines3
    from rlinf_import.page import page
    from rlinf_import.reading import imported
    from rlinf_import.sheet import Options
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    from rlinf.algorithms import catalog
    from rlinf.base.user_code import imported as loaded
    from rlinf.config import load
    from rlinf.learners.off_policy.objective import Placement
    from rlinf.learners.off_policy.replay_buffer import Transitions
    from rlinf.train.assemble.simulator_policy import make_off_policy

    updates, rows, gamma = 4, 32, 0.98
    more = {"ent_coef": 0.1} if kind == "sac" else {}
    written = {"n_timesteps": 100, "policy": "MlpPolicy", "gamma": gamma, "learning_rate": 1e-3, "tau": 0.05, **more}
    text = "".join(f"  {name}: {value}\n" for name, value in written.items())
    (tmp_path / f"{kind}.yml").write_text(f"Pendulum-v1:\n{text}  policy_kwargs: dict(net_arch=[24, 16])\n")
    (tmp_path / "entry.yaml").write_text(
        page(imported("sb3", tmp_path / f"{kind}.yml", (), Options(environment="Pendulum-v1")))
    )
    config, env = load(tmp_path / "entry.yaml"), gymnasium.make("Pendulum-v1")
    shape = {"policy_kwargs": {"net_arch": [24, 16]}, "seed": 0, "device": "cpu"}
    model = getattr(stable_baselines3, kind.upper())(
        "MlpPolicy", env, gamma=gamma, learning_rate=1e-3, tau=0.05, **more, **shape
    )
    model._setup_learn(100)
    policy = make_off_policy(config, env.observation_space, env.action_space)
    acting, judging, following = sb3_parts(model, kind)
    make = loaded(catalog.off_policy(config.algorithm.loss_type).function)
    objective = make(policy, config.algorithm, config.learner.optimizer, Placement())
    networks = [*policy.parameters_of_actor(), *policy.parameters_of_critic()]
    with torch.no_grad():
        for theirs in following:
            theirs += 0.1  # or they would hardly move
        pairs = zip([*networks, *objective.target.weights.parts], [*acting, *judging, *following], strict=True)
        for mine, theirs in pairs:
            mine.copy_(as_ours(theirs, mine))

    g = torch.Generator().manual_seed(0)
    noises: list[torch.Tensor] = []
    if kind == "sac":  # the current actions are drawn before those that follow
        monkeypatch.setattr(torch.distributions.normal, "_standard_normal", lambda *_, **__: noises.pop())
    else:
        normal = torch.Tensor.normal_
        monkeypatch.setattr(
            torch.Tensor, "normal_", lambda it, mean, std: it.copy_(std * noises[0]) if std else normal(it, mean, std)
        )
    for number in range(updates):
        before, after = torch.randn(2, rows, 3, generator=g)
        actions, rewards = 2 * torch.rand(rows, 1, generator=g) - 1, torch.randn(rows, 1, generator=g)
        dones = (torch.rand(rows, 1, generator=g) < 0.2).float()
        noise = torch.randn(objective.noise_draws, rows, 1, generator=g)
        noises[:] = noise.unbind()
        drawn = ReplayBufferSamples(before, actions, after, dones, rewards)
        monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, given=drawn, **__: given)
        model.train(1, rows)
        discounts = gamma * (1 - dones)[:, 0]
        given = Transitions({"observation": before}, actions, rewards[:, 0], {"observation": after}, discounts)
        if kind == "sac":
            given = Transitions(given.inputs, torch.atanh(actions), given.rewards, given.next_inputs, discounts)
        objective.improve(given, noise, number)
    acting, judging, following = sb3_parts(model, kind)
    for mine, theirs in zip([*networks, *objective.target.weights.parts], [*acting, *judging, *following], strict=True):
        close(mine.detach(), as_ours(theirs, mine), atol=2e-5, rtol=0)
