"""GRPO top to bottom, from the public pieces of rlinf.

    python examples/minimal_grpo.py        about one minute on one CPU core

A transformer of 300,000 parameters, built from nothing, answers single-digit sums. A short imitation phase teaches it
the form of an answer and little arithmetic; then GRPO raises its accuracy with nothing but verified rewards. The loop
is the one that `rlinf train` runs, without its configuration, checkpoints, processes and reports.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlinf.algorithms import compute_advantages, policy_loss
from rlinf.base.random_streams import numpy_generator
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Completion, SampleRequest, SamplingParams, WeightUpdate
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import build_causal_lm
from rlinf.models.tokenizer import train_tokenizer
from rlinf.samplers.hf import HFSampler

ARCHITECTURE = {
    "model_type": "qwen2",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
}
TASK = {"task": "chain_sum", "params": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}}


@dataclass(frozen=True)
class Settings:
    """Everything that can be changed from the command line; the defaults train in about one CPU-minute."""

    iterations: int = field(default=60, metadata={"help": "training iterations: one rollout and one update each"})
    prompts: int = field(default=64, metadata={"help": "prompts of an iteration"})
    group_size: int = field(default=16, metadata={"help": "responses to each prompt"})
    imitation_steps: int = field(default=120, metadata={"help": "supervised steps before reinforcement learning"})
    lr: float = field(default=1e-3, metadata={"help": "learning rate of AdamW"})
    seed: int = field(default=0, metadata={"help": "seed of the weights, the prompts and the responses"})


def train(settings: Settings) -> list[float]:
    """Runs GRPO and prints the curve; returns the greedy accuracy of every fifth iteration and the last."""
    env: Any = gymnasium.make_vec("rlinf_envs:rlinf/ReasoningGym-v0", answer_format="plain", size=150, **TASK).unwrapped
    demonstrations = env.demonstrations(range(env.num_tasks))
    tokenizer = train_tokenizer((text for pair in demonstrations for text in pair), vocab_size=300)
    sampling = SamplingParams(max_new_tokens=4)

    # The policy learns; the sampler generates with its own copy of the weights, as it does on other GPUs.
    policy = CausalLMPolicy(build_causal_lm(ARCHITECTURE, tokenizer, seed=settings.seed), sampling=sampling)
    sampler = HFSampler(
        build_causal_lm(ARCHITECTURE, tokenizer, seed=settings.seed),
        eos_token_ids={tokenizer.eos_token_id},
        pad_token_id=tokenizer.pad_token_id,
        seed=settings.seed,
        generation_batch_size=256,
        max_model_len=64,
    )
    optimizer = torch.optim.AdamW(policy.parameters(), lr=settings.lr, betas=(0.9, 0.95), weight_decay=0.0)

    def respond(task_ids: Sequence[int], step: int, n: int, params: SamplingParams) -> list[Completion]:
        requests = [
            SampleRequest(row, tuple(tokenizer.encode(env.prompt(task))), n=n, params=params, key=(step, row))
            for row, task in enumerate(task_ids)
        ]
        return sampler.sample(requests)

    def rewards_of(task_ids: Sequence[int], completions: Sequence[Completion]) -> Tensor:
        env.resize(len(task_ids))
        env.reset(options={"task_ids": task_ids})
        responses = [tokenizer.decode(done.token_ids, skip_special_tokens=True) for done in completions]
        return torch.as_tensor(env.step(responses)[1])

    def greedy_accuracy(step: int) -> float:
        task_ids = list(range(env.num_tasks))
        return float(rewards_of(task_ids, respond(task_ids, step, 1, sampling.greedy())).mean())

    draw = numpy_generator(settings.seed, "tasks")
    for _ in range(settings.imitation_steps):
        pairs = [demonstrations[task] for task in draw.choice(env.num_tasks, 32)]
        batch = Tokens.of(
            [tokenizer.encode(prompt) for prompt, _ in pairs],
            [[*tokenizer.encode(response), tokenizer.eos_token_id] for _, response in pairs],
        )
        descend(optimizer, policy, -(batch.logprobs(policy) * batch.mask).sum() / batch.mask.sum())

    accuracies: list[float] = []
    for step in range(settings.iterations + 1):
        # 1. The sampler takes the newest weights.
        sampler.load(WeightUpdate(step, dict(policy.weights())))
        if step % 5 == 0 or step == settings.iterations:
            accuracies.append(greedy_accuracy(step))
            print(f"iteration {step:3d}  greedy accuracy {accuracies[-1]:.3f}  {'#' * round(40 * accuracies[-1])}")
        if step == settings.iterations:
            break
        # 2. Each prompt gets a group of responses, and the environment grades them.
        chosen = draw.choice(env.num_tasks, settings.prompts, replace=False).tolist()
        completions = respond(chosen, step, settings.group_size, sampling)
        group_ids = torch.arange(settings.prompts).repeat_interleave(settings.group_size)
        task_ids = [chosen[group] for group in group_ids.tolist()]
        rewards = rewards_of(task_ids, completions)
        batch = Tokens.of(
            [tokenizer.encode(env.prompt(task)) for task in task_ids], [done.token_ids for done in completions]
        )
        rollout_logprobs = pad_sequence([torch.tensor(done.logprobs) for done in completions], batch_first=True)
        # 3. A response's advantage is its reward relative to its group.
        advantages = compute_advantages("grpo", rewards=rewards, mask=batch.mask, group_ids=group_ids).advantages
        # 4. One optimiser step on the clipped policy loss.
        loss, _ = policy_loss(
            "actor",
            logprobs=batch.logprobs(policy),
            old_logprobs=rollout_logprobs,
            advantages=advantages,
            mask=batch.mask,
            clip_ratio_high=0.28,
        )
        descend(optimizer, policy, loss)
        print(f"iteration {step:3d}  mean reward {rewards.mean():.3f}  loss {loss.item():+.4f}")
    env.close()
    return accuracies


@dataclass(frozen=True)
class Tokens:
    """Prompts and responses as the policy reads them: right-padded, with a mask [B, T] over valid response tokens."""

    inputs: TextInputs
    actions: Tensor
    mask: Tensor

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Tokens:
        prompt_ids, actions = (
            pad_sequence([torch.tensor(row) for row in rows], batch_first=True) for rows in (prompts, responses)
        )
        prompt_lengths, lengths = (torch.tensor([len(row) for row in rows]) for rows in (prompts, responses))
        return cls(
            TextInputs(prompt_ids, prompt_lengths, lengths), actions, torch.arange(actions.shape[1]) < lengths[:, None]
        )

    def logprobs(self, policy: CausalLMPolicy) -> Tensor:
        """Log-probabilities [B, T] of the responses, with gradient."""
        return policy.evaluate(self.inputs, self.actions, self.mask, with_entropy=False).logprobs


def descend(optimizer: torch.optim.Optimizer, policy: CausalLMPolicy, loss: Tensor) -> None:
    """One optimiser step with the gradient's norm clipped to 1."""
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, setting in Settings.__dataclass_fields__.items():
        kind = type(setting.default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=setting.default, **setting.metadata)
    torch.set_num_threads(1)
    train(Settings(**vars(parser.parse_args())))
