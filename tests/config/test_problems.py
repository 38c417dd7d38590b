"""Deliberately wrong configurations: each message shows what is wrong, where, and what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from config_cases import Write, mistakes

from rlinf.config import ConfigErrors, ConfigProblem, load, load_mapping
from rlinf.config.names import facts_of, leaves
from rlinf.planning.describe import plan

SIMULATOR = """
env: {id: CartPole-v1, kwargs: {task: null}, num_envs: 8}
policy: {name: actor_critic, architecture: {}}
algorithm: {adv_type: gae, loss_type: actor_critic, group_size: 1}
"""
EXPERTS = "policy: {architecture: {model_type: qwen3_moe, num_experts: 6, moe_intermediate_size: 8}}\n"
EXPERTS += "learner: {backend: megatron, num_workers: 4, megatron: {"
SERVER = "rollout: {sampler: server, server: {base_url: 'http://host:8000/v1'}"
ENGINES = "cluster: {gpu_memory_gb: 80}\nlearner: {num_workers: 6}\n"
ENGINES += "rollout: {sampler: vllm, num_samplers: 2, batch_size: 33, vllm: {"
MEGATRON = "learner: {backend: megatron, num_workers: 4, megatron: {"

# What was written, the message, and the fix.
WRONG = [
    ("rollout: {batch_sze: 4}", "rollout.batch_sze is not a key.", "Did you mean rollout.batch_size?"),
    ("group_size: 4", "group_size is not a key.", "Did you mean algorithm.group_size?"),
    ("rollout_batch_sise: 4", "rollout_batch_sise is not a key.", "Did you mean rollout_batch_size?"),
    ("rolout: {batch_size: 4}", "rolout is not a key.", "Did you mean rollout"),
    ('run: {seed: "8"}', 'run.seed must be a whole number, not the text "8".', "Write 8, without quotes."),
    ("run: {max_steps: 3.0}", "run.max_steps must be a whole number, not 3.0.", "Write 3."),
    ("learner: {num_workers: true}", "learner.num_workers must be a whole number, not the switch true.", "8"),
    ("policy: {value_head: 1}", "policy.value_head must be true or false, not 1.", "Write true or false"),
    ('learner: {optimizer: {lr: "1e-4"}}', "learner.optimizer.lr must be a number", "Write 1e-4, without quotes."),
    ("learner: {optimizer: {lr: null}}", "learner.optimizer.lr must be a number, not null.", "For example: 0.5"),
    ("learner: {optimizer: {betas: 0.9}}", "betas must be a list of 2 values, not 0.9.", "[0.5, 0.5]"),
    ("learner: {optimizer: {lr: inf}}", 'must be a number, not the text "inf".', "For example: 0.5"),
    ("policy: {hidden_sizes: 64}", "each entry a whole number, not 64.", "Write [64]."),
    ("policy: {hidden_sizes: '(64,32)'}", 'each entry a whole number, not the text "(64,32)".', "Write [64, 32]."),
    ("policy: {hidden_sizes: [64 64]}", "must be a list where each entry is a whole number", "Write [64, 64]."),
    ("learner: {optimizer: {learningRate: 0.1}}", "learningRate is not a key.", "learner.optimizer.lr"),
    ("run: {max_steps: 10k}", 'run.max_steps must be a whole number, not the text "10k".', "Write 10000."),
    ("policy: {hidden_sizes: wide}", 'each entry a whole number, not the text "wide".', "For example: [8, 8]."),
    ("run: {name: [a]}", "run.name must be text, not the list", "Write a, without brackets."),
    (
        "sft: {data: [a.jsonl, b.jsonl]}",
        "sft.data must be text (or null), not the list",
        "a folder, which is read as a",
    ),
    ("run: {name: 7}", "run.name must be text, not 7.", 'Put it in quotes: "7".'),
    ("learner: {backend: torhc}", "must be one of torch, fsdp, megatron", "Did you mean torch?"),
    ("policy: {lora: 8}", "policy.lora is a section, not 8.", "Write its keys under it"),
    ("algorithm: {reward_norm: grup}", "algorithm.reward_norm must be", "Did you mean group?"),
    ("algorithm: {adv_type: grop}", "algorithm.adv_type: grop does not exist", "Did you mean grpo?"),
    ("algorithm: {loss_type: act}", "algorithm.loss_type: act does not exist", "Did you mean actor?"),
    (
        "algorithm: {loss_type: dapo}",
        "algorithm.loss_type: dapo does not exist",
        "Write adv_type: grpo, loss_type: actor, clip_",
    ),
    (
        "algorithm: {adv_type: cispo}",
        "algorithm.adv_type: cispo does not exist",
        "Write adv_type: grpo, loss_type: cispo and loss_agg_func: token-mean.",
    ),
    ("algorithm: {adv_type: GRPO}", "algorithm.adv_type: GRPO does not exist", "Did you mean grpo?"),
    ("rollout: {n: 8}", "rollout.n is not a key", "What verl calls n is algorithm.group_size here."),
    ("algorithm: {loss_agg_func: token_mean}", "loss_agg_func: token_mean does not exist", "Did you mean token-mean?"),
    ("algorithm: {num_minibatches: 3}", "does not divide the 256 rows of a step", "use 2 or 4."),
    ("algorithm: {num_minibatches: 256}\nlearner: {num_workers: 2}", "learner.num_workers 2 is more", "at most 1"),
    ("env: {num_workers: 40}", "env.num_workers 40 is more than rollout.batch_size 32", "Use at most 32."),
    ("rollout: {num_samplers: 33}", "rollout.num_samplers 33 is more than rollout.batch_size", "Use at most 32."),
    (
        "algorithm: {adv_type: reinforce, group_size: 1, reward_norm: group}",
        "algorithm.reward_norm: group compares the members of a group, and algorithm.group_size is 1",
        "or choose reward_norm: batch.",
    ),
    (
        "algorithm: {adv_type: reinforce, group_size: 1, dynamic_sampling: true}",
        "algorithm.dynamic_sampling discards groups whose rewards are all equal: with algorithm.group_size 1, all of",
        "or take it out.",
    ),
    (
        "algorithm: {loss_type: clip_cov, cov_lower_bound: 6}",
        "algorithm.cov_lower_bound 6.0 is not below cov_upper_bound 5.0: no position would be selected.",
        "Take 1.0 and 5.0",
    ),
    ("algorithm: {adv_type: reinforce_pp, kl_controller: adaptive}", "is not read without kl_coef: 0.001", ""),
    ("run: {init_optimizer: true}", "run.init_optimizer is not read without run.init_from.", "Name a run"),
    ("evaluation: {size: 0, every: 5}", "evaluation.every is not read with evaluation.size: 0.", "Take it out"),
    ("learner: {backend: fsdp, compare_float32_every: 5}", "is not read by learner.backend: fsdp", ""),
    ("policy: {dtype: float32}\nlearner: {compare_float32_every: 5}", "there is nothing to compare", "bfloat16"),
    ("cluster: {gpus_per_learner: 1.5}", "more than one GPU must be a whole number", "Use 1 or 2."),
    ("algorithm: {group_size: 1}", "adv_type: grpo compares the members of a group", "Set algorithm.group_size to 2"),
    ("rollout: {batch_size: 0}", "rollout.batch_size must be at least 1, not 0.", "Write 1 or more."),
    ("rollout: {top_p: 1.5}", "rollout.top_p must be at most 1, not 1.5.", "Write 1 or less."),
    ("algorithm: {clip_ratio_c: 0.5}", "algorithm.clip_ratio_c must be above 1", "Write more than 1."),
    ("rollout: {temperature: 0}", "gives every member of a group the same response", "Set it to 1.0"),
    ("algorithm: {adv_type: gae, loss_type: actor_critic}", "adv_type: gae needs values", "policy.value_head: true"),
    ("algorithm: {loss_type: actor_critic}", "loss_type: actor_critic needs values", "policy.value_head: true"),
    ("reward_model: {weight: 0.5}", "reward_model.weight is not read without a reward model", "supervision: outcome"),
    ("reward_model: {supervision: outcome}", "its head is untrained", "reward_model.fit_batches: 8"),
    ("reward_model: {supervision: process, fit_batches: 2}", "is not what adv_type: grpo learns from", "outcome"),
    ("reward_model: {supervision: outcome, fit_batches: 2, history_rows: 9}", "history_rows is not read", "refresh"),
    ("reward_model: {supervision: outcome, fit_batches: 2, weight: 2}", "at most 1, not 2", "Write 1 or less."),
    ("reward_model: {supervision: outcome, path: no/such/model/}", "reward_model.path: no/such/model/ does not", ""),
    (
        "reward_model: {supervision: outcome, fit_batches: 2}\nalgorithm: {dynamic_sampling: true}",
        "chooses groups by the environment's rewards",
        "filter_rewards",
    ),
    ("policy: {value_head: true}", "policy.value_head is not read by adv_type: grpo", "It is read by adv_type: gae."),
    ("algorithm: {adv_type: grpo_process}", "needs a score for each step", "env.kwargs.steps: {scorer: arithmetic}"),
    (
        "algorithm: {use_valid_token_scale: true, token_scale: global, loss_agg_func: seq-mean-token-mean}",
        "algorithm.token_scale: global divides the sum of all losses by all valid tokens",
        "Set loss_agg_func: token-mean",
    ),
    ("algorithm: {token_scale: global}", "is not read without use_valid_token_scale: true", ""),
    ("algorithm: {clip_after_norm: true}", "is not read without reward_clip: 10", ""),
    (
        "algorithm: {adv_type: rloo, reward_clip: 1, clip_after_norm: true}",
        "clip_after_norm is not read by",
        "grpo_passk",
    ),
    ("algorithm: {kl_after_norm: true}", "is not read without add_token_level_kl: true", ""),
    (
        "algorithm: {options: {power: 2}}",
        "algorithm.options.power is not read by",
        "They have no options of their own.",
    ),
    ("algorithm: {adv_type: remax, reward_norm: batch}", "algorithm.reward_norm changes the rewards", "Take it out"),
    ("algorithm: {environment_coef: 0.1}", "and they have one turn", "set env.max_turns: 2 or more"),
    ("algorithm: {adv_type: gdpo, reward_norm: batch}", "algorithm.reward_norm changes their sum alone", "length term"),
    ("algorithm: {adv_type: gdpo, reward_clip: 1.0}", "algorithm.reward_clip changes their sum alone", "Take it out"),
    (SIMULATOR.replace("gae, loss_type: actor_critic", "gdpo"), "which simulators do not report", "adv_type: grpo"),
    (SIMULATOR.replace("gae, loss_type: actor_critic", "remax"), "needs a greedy response", "adv_type: grpo"),
    ("algorithm: {gae_lambda: 0.9}", "algorithm.gae_lambda is not read by adv_type: grpo", "read by adv_type: gae."),
    ("algorithm: {tis_cap: 3}", "algorithm.tis_cap is not read by", "It is read by loss_type: tis."),
    ("algorithm: {difficulty_low_threshold: 0.1}", "is not read without difficulty_mask: true.", "Add difficulty_mask"),
    (
        "algorithm: {difficulty_mask: true, difficulty_low_threshold: 0.9, difficulty_high_threshold: 0.1}",
        "difficulty_low_threshold 0.9 is not below difficulty_high_threshold 0.1",
        "Take 0.1 and 0.95",
    ),
    ("algorithm: {max_resample: 9}", "is not read without dynamic_sampling: true.", "Add dynamic_sampling: true."),
    ("algorithm: {rollout_correction: {cap: 3}}", "is not read without a level", "level: token, or a preset"),
    ("algorithm: {rollout_correction: {reject_by: k1}}", "is not read without reject_above", ""),
    ("algorithm: {rollout_correction: {preset: icepop, floor: 6}}", "floor 6 is not below cap 5", "near 1"),
    ("algorithm: {add_token_level_kl: true}", "and kl_coef is 0: it does nothing", "Set algorithm.kl_coef"),
    ("algorithm: {add_token_level_kl: true, kl_coef: 0.1, token_kl_type: k9}", "token_kl_type: k9 does not", "list kl"),
    ("algorithm: {token_kl_type: kl}", "is not read without add_token_level_kl: true.", ""),
    ("algorithm: {kl_coef: 0.1}", "is not read without add_token_level_kl: true.", "Add add_token_level_kl: true."),
    ("rollout: {max_new_tokens: 20000}", "cannot hold one row", "Set learner.micro_batch_tokens to 20512 or more"),
    (
        "policy: {architecture: {max_position_embeddings: 600}}",
        "the model sees at most 600 tokens",
        "Set rollout.max_new_tokens to 88 or less.",
    ),
    (
        "policy: {architecture: {model_type: gpt2, n_positions: 600}}",
        "the model sees at most 600 tokens",
        "Set rollout.max_new_tokens to 88 or less.",
    ),
    ("cluster: {address: 'ray://head:10001'}", "is Ray Client, which can't stream", "cluster.address: auto"),
    ("rollout: {sampler: server}", "rollout.sampler: server needs the address", "Set rollout.server.base_url"),
    (SERVER + ", sleep: always}", "a server does not free its memory for the learner", "Set it to auto."),
    (SERVER + ", num_samplers: 2}", "one client is enough", "Set it to 1."),
    (SERVER + ", generation_batch_size: 8}", "is not read by rollout.sampler: server.", "Take it out"),
    (SERVER + "}\ncluster: {gpus_per_sampler: 1}", "the server has its own GPUs", "Set it to null."),
    ("rollout: {sampler: hf, vllm: {max_num_seqs: 8}}", "is not read by rollout.sampler: hf.", "sampler: vllm."),
    ("evaluation: {samples: 4}", "evaluation.samples 4 at temperature 0", "Set evaluation.temperature: 0.6"),
    (
        "run: {max_steps: 0}",
        "0 (`rlinf sft` sets it) is for a warm start alone, and there is none",
        "Write 1 or more, or set sft.steps.",
    ),
    ("run: {max_steps: -1}", "run.max_steps must be at least 0, not -1.", "Write 0 or more."),
    ("learner: {optimizer: {warmup_steps: 500}}", "is more than the 100 optimiser steps", "Set it to 10, for example."),
    (
        "run: {max_steps: 4}\nalgorithm: {update_epochs: 2, num_minibatches: 4}\n"
        "learner: {optimizer: {warmup_steps: 33}}",
        "is more than the 32 optimiser steps of the run (run.max_steps 4 x 8)",
        "Set it to 3, for example.",
    ),
    ("cluster: {backend: local}\nlearner: {num_workers: 2}", "local runs one learner", "Use cluster.backend: ray"),
    ("policy: {hidden_sizes: [8]}", "is read only by simulator policies", "choose policy.name: actor_critic"),
    (
        "policy: {lora: {rank: 4}}\nlearner: {backend: megatron, num_workers: 2}",
        "policy.lora is not supported by learner.backend: megatron: its layers hold several weights",
        "learner.backend: torch",
    ),
    ("policy: {attention: flash_attention_2}", "needs the package flash-attn and a GPU", "Set policy.attention: sdpa"),
    ("evaluation: {size: 0, every: 5}", "is not read with evaluation.size: 0", "evaluation.every=0 on the command"),
    (
        ENGINES + "tensor_parallel_size: 16}}",
        "16 is more than the 8 GPUs of a machine",
        "Use at most 8, and more samplers.",
    ),
    (
        ENGINES + "tensor_parallel_size: 4}}",
        "2 samplers of 4 GPUs need 8, and they share those of 6",
        "num_samplers: 1.",
    ),
    (
        ENGINES.replace("cluster: {", "cluster: {gpus_per_sampler: 1, ") + "tensor_parallel_size: 2}}",
        "cluster.gpus_per_sampler 1 is not rollout.vllm.tensor_parallel_size 2",
        "Set it to null.",
    ),
    ("env: {id: ''}", "env.id is missing", "Add `env:` with `id:"),
    ("rollout: {stop: ['', 'Q:']}", "rollout.stop: an empty text is in every response", "Take it out."),
    ("env:\n  id: ???", "env.id is ???, which stands for a value that is still to be given.", "env.id=... on the"),
    ("learner:\n  optimizer:\n    lr: ???", "learner.optimizer.lr is ???", "learner.optimizer.lr=... on the command"),
    ("env: {id: 'rlinf_env:rlinf/Math-v0'}", "there is no module rlinf_env here", "rlinf_envs:rlinf/ReasoningGym-v0"),
    ("algorithm: {loss_type: sac}", "loss_type: sac trains simulator policies", "Choose loss_type: actor."),
    ("policy: {architecture: null}", "neither a path nor an architecture", "Set policy.path"),
    (
        "policy: {path: ./nowhere, architecture: null}",
        "policy.path: ./nowhere does not exist.",
        "Give the path of something in",
    ),
    ("env: {kwargs: {path: data/train.jsonl}}", "env.kwargs.path: data/train.jsonl does not exist.", "no folder data"),
    ("checkpoint: {best_metric: accuracy}", "is not an evaluation metric.", "Write eval/accuracy"),
    (MEGATRON + "tensor_parallel: 3}}", "= 3 does not divide learner.num_workers 4:", "use 6 ranks"),
    (MEGATRON + "tensor_parallel: 4}}", "does not divide num_key_value_heads 2:", "use 2."),
    (MEGATRON + "pipeline_parallel: 2, virtual_pipeline: 3}}", "= 6 does not divide the 4 layers:", "use 4 stages."),
    (MEGATRON + "pipeline_parallel: 5}}", "does not divide the 4 layers:", "use 4 stages."),
    (MEGATRON + "context_parallel: 4}}\npolicy: {architecture: {num_attention_heads: 6}}", "share 6 heads", "1, 2, 6"),
    (MEGATRON + "expert_parallel: 2}}", "expert_parallel is not read by a model without experts", "Take it out."),
    (EXPERTS + "tensor_parallel: 2}}", "need the tokens split over them too:", "set sequence_parallel: true."),
    (EXPERTS + "expert_parallel: 4}}", "expert_parallel 4 does not divide 6 experts:", "use 3 or 6."),
    (
        "cluster: {placement: separate}\nlearner: {offload: {weights: true}}",
        "offload.weights is not read with cluster.placement: separate",
        "Take it out.",
    ),
    ("learner: {megatron: {tensor_parallel: 2}}", "is not read by learner.backend: torch.", "backend: megatron."),
    (MEGATRON + "}}\npolicy: {lora: {rank: 8}}", "lora is not supported by learner.backend: megatron", "rank: 0"),
    (SIMULATOR + "rollout: {max_new_tokens: 9}", "is read only by language models", "choose policy.name: causal_lm"),
    (
        "env: {wrappers: FlattenObservation}",
        "env.wrappers must be a list, each entry a value, not the text",
        "For example: wrappers: [FlattenObservation, {RescaleAction: {min_action: -1, max_action: 1}}].",
    ),
]


@pytest.mark.parametrize(("text", "message", "fix"), WRONG, ids=[text.strip()[:50] for text, _, _ in WRONG])
def test_one_mistake_gives_one_clear_message(write: Write, text: str, message: str, fix: str) -> None:
    path = write(text)
    with pytest.raises(ConfigErrors) as caught:
        load(path)
    output = [problem for problem in caught.value.problems if message in str(problem)]
    assert output, str(caught.value)
    assert fix in str(output[0])
    assert output[0].file
    assert str(output[0]).startswith((f"{path}:", f"{path.parent / 'minimal.yaml'}:"))


@pytest.mark.parametrize(
    ("rest", "here", "message"),
    [
        ("", False, "liger needs the package liger-kernel and a GPU; it is not installed."),
        ("", True, "liger is for GPUs, and the learner computes on the CPU."),
        (
            "rollout: {top_p: 0.9}\ncluster: {gpu_memory_gb: 80}",
            True,
            "liger computes no distribution that top_k, top_p",
        ),
        (MEGATRON + "}}\ncluster: {gpu_memory_gb: 80}", True, "liger is not supported by learner.backend: megatron"),
    ],
    ids=["no package", "no GPU", "top_p", "megatron"],
)
def test_liger_is_refused_with_the_reason(
    write: Write, monkeypatch: pytest.MonkeyPatch, rest: str, here: bool, message: str
) -> None:
    monkeypatch.setattr("rlinf.config.checks.policy.installed", lambda module: here)
    monkeypatch.setattr("rlinf.config.derived.gpu_count", lambda: 0)
    found = mistakes(write(f"policy: {{fused_logprobs: liger}}\n{rest}"))
    assert message in found
    assert "Set policy.fused_logprobs: builtin" in found


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (
            "policy: {logits_dtype: float32}\n" + MEGATRON + "}}",
            "logits_dtype: float32 is not supported by learner.backend",
        ),
        ("policy: {logits_dtype: float32, fused_logprobs: liger}", "is not supported by policy.fused_logprobs: liger"),
    ],
    ids=["megatron", "liger"],
)
def test_logits_in_float32_are_refused_if_nothing_makes_them(write: Write, rest: str, message: str) -> None:
    found = mistakes(write(rest))
    assert message in found
    assert "Set policy.logits_dtype: auto" in found


@pytest.mark.parametrize(
    ("rest", "gpus", "version", "message"),
    [
        ("", 8, None, "vllm fills samplers of vLLM: set rollout.sampler: vllm."),
        (", sampler: vllm", 0, None, "moves weights between GPUs, and the learner computes on the CPU."),
        (
            ", sampler: vllm}\nlearner: {backend: fsdp, num_workers: 2",
            8,
            None,
            "only if each holds all weights: set cluster.placement: separate.",
        ),
        (", sampler: vllm}\ncluster: {placement: separate", 8, "0.33.0", "is known of vLLM 0.32.x, whose interface"),
        (
            ", sampler: vllm}\ncluster: {placement: separate}\nlearner: {backend: megatron, num_workers: 2",
            8,
            None,
            "ranks of learner.backend: megatron give a part of the weights each.",
        ),
    ],
    ids=["hf", "no GPU", "shared", "version", "megatron"],
)
def test_vllm_s_weight_transfer_is_refused_with_the_reason(
    write: Write, monkeypatch: pytest.MonkeyPatch, rest: str, gpus: int, version: str | None, message: str
) -> None:
    monkeypatch.setattr("rlinf.config.derived.gpu_count", lambda: gpus)
    monkeypatch.setattr("rlinf.config.checks.cluster.installed_version", lambda distribution: version)
    found = mistakes(write(f"rollout: {{weight_transport: vllm{rest}}}\n"))
    assert message in found
    assert "Set rollout.weight_transport: auto." in found


def test_a_simulator_step_has_an_episode_for_every_minibatch_and_an_env_for_every_worker(write: Write) -> None:
    episodes = "{adv_type: grpo, loss_type: actor, group_size: 2, num_minibatches: 9}\nrollout: {batch_size: 4}"
    text = SIMULATOR.partition("algorithm:")[0] + f"algorithm: {episodes}\n"
    assert "num_minibatches 9 is more than the 8 episodes of a step" in mistakes(write(text))
    crowded = SIMULATOR.replace("num_envs: 8", "num_envs: 8, num_workers: 9")
    assert "env.num_workers 9 is more than env.num_envs 8" in mistakes(write(crowded))


def test_all_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "run:\n  seed: '1'\nrollout:\n  batch_sze: 3\n  top_p: 2\nlearner:\n  backend: torhc\n"
        "policy: {path: ./nowhere}\nevaluation: {samples: 3}\nextends: minimal.yaml\nalgorithm: {num_minibatches: 7}\n"
        "rollout: {temperature: hot}\n"
    )
    (tmp_path / "minimal.yaml").write_text("env: {id: CartPole-v1}\nalgorithm: {group_size: 4}\n")
    found = mistakes(path, "cluster.backend=Local").splitlines()
    lines = [line.split(": ")[0].removeprefix(f"{path}:") for line in found]
    assert lines == ["2", "4", "5", "7", "8", "9", "12", "command line"]


def test_what_depends_on_a_broken_key_is_not_judged(write: Write) -> None:
    # A batch size that cannot be read gives one message, not one more about rows.
    found = mistakes(write("rollout: {batch_size: many}\nalgorithm: {num_minibatches: 3}\n"))
    assert found.count("\n") == 0


def test_a_list_of_the_known_keys_where_nothing_is_near(write: Write) -> None:
    assert "Keys of data: max_prompt_length, shuffle" in mistakes(write("data: {zzzz: 1}"))


def test_a_key_written_twice(write: Write) -> None:
    found = mistakes(write("run:\n  seed: 1\n  seed: 2\n"))
    assert "run.seed is written twice, on lines 3 and 4. Take one of them out." in found


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("run: {seed: 1}\nenv: [1, 2\nrollout: 3\n")
    assert f"{path}:3: this is not valid YAML" in mistakes(path)


def test_a_file_that_does_not_exist_names_the_nearest(minimal: Path) -> None:
    found = mistakes(minimal.with_name("minimol.yaml"))
    assert "does not exist. Did you mean" in found
    assert "minimal.yaml?" in found


def test_overrides_that_are_none(minimal: Path) -> None:
    assert "'rollout.batch_size' is not an override. Write key=value" in mistakes(minimal, "rollout.batch_size")
    assert "command line: rollout.batch_sise is not a key. Did you mean rollout.batch_size?" in mistakes(
        minimal, "rollout.batch_sise=4"
    )


def test_a_missing_colon_names_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "colon.yaml"
    path.write_text("run: {seed: 1}\nrollout\n  batch_size: 2\n")
    assert f"{path}:2: this is not valid YAML: could not find expected ':'" in mistakes(path)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "this is not a text file. Save it as UTF-8" in mistakes(path)


BOUNDED_BELOW = [key for key in leaves() if facts_of(key).bound_broken_by(-5)]


@pytest.mark.parametrize("key", BOUNDED_BELOW)
def test_numbers_out_of_range_give_one_message_and_never_a_crash(minimal: Path, key: str) -> None:
    found = mistakes(minimal, f"{key}=-5")
    assert f"{key} must be" in found
    assert found.count("\n") == 0


AT_NIGHT = ("null", "-5", "[]", "0", ".nan")


@pytest.mark.parametrize("value", ["x", *(pytest.param(one, marks=pytest.mark.slow) for one in AT_NIGHT)])
def test_any_value_anywhere_loads_or_is_explained(minimal: Path, value: str) -> None:
    for key in leaves():
        output: list[ConfigProblem] = []
        try:
            plan(load(minimal, [f"{key}={value}"]))
        except ConfigErrors as errors:
            output = errors.problems
        assert all(problem.fix for problem in output), key


def test_a_model_that_make_fetches_is_named(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the repository's root may have it
    with pytest.raises(ConfigErrors) as caught:
        load(write("policy: {path: models/smollm2, architecture: null}"))
    assert "policy.path: models/smollm2 does not exist. `make models/smollm2` fetches it" in str(caught.value)


def test_a_data_set_that_is_read_from_no_hub_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a name of two parts, as the hub has them
    (tmp_path / "iql.yaml").write_text(
        "# rlinf record iql.yaml --out datasets/mixed\nenv: {id: Pendulum-v1}\npolicy: {name: actor_critic}\n"
        "algorithm: {loss_type: iql, prior_data: datasets/mixed}\n"
    )
    found = "algorithm.prior_data: datasets/mixed does not exist. iql.yaml:1 has the command that makes it."
    with pytest.raises(ConfigErrors) as caught:
        load("iql.yaml")
    assert found in str(caught.value)


def test_the_command_line_switches_off_what_the_file_sets_of_evaluations(write: Write) -> None:
    file = write("evaluation: {every: 5, env_kwargs: {split: eval}}")
    assert load(file, ["evaluation.size=0"]).evaluation.size == 0
    with pytest.raises(ConfigErrors, match=r"evaluation\.every is not read with evaluation\.size: 0"):
        load(file, ["evaluation.size=0", "evaluation.every=3"])


def test_the_command_line_switches_off_the_warm_start_of_a_file(write: Write) -> None:
    file = write("sft: {steps: 20, evaluate_every: 10}")
    assert load(file, ["sft.steps=0"]).sft.steps == 0
    with pytest.raises(ConfigErrors, match=r"sft\.evaluate_every is not read without a warm start"):
        load(file, ["sft.steps=0", "sft.evaluate_every=5"])


def test_a_step_may_have_no_limit(minimal: Path) -> None:
    assert load(minimal, ["env.step_timeout_s=0"]).env.step_timeout_s == 0


def test_a_module_next_to_the_file_is_pointed_to(write: Write) -> None:
    path = write("env: {id: 'an_env_of_mine:Mine-v0'}\npolicy: {name: actor_critic, architecture: null}\n")
    # As a run's own copy of its configuration lies in the folder of its start.
    below = path.parent / "my runs" / "runs" / "first" / path.name
    below.parent.mkdir(parents=True)
    for file in path.parent.glob("*.yaml"):
        (below.parent / file.name).write_text(file.read_text())
    (path.parent / "my runs" / "an_env_of_mine").mkdir()
    (path.parent / "my runs" / "an_env_of_mine" / "__init__.py").write_text("")
    assert f"start the run in '{path.parent}/my runs', or with PYTHONPATH='{path.parent}/my runs'" in mistakes(below)
    (path.parent / "an_env_of_mine.py").write_text("")
    words = mistakes(path)
    assert "there is no module an_env_of_mine here" in words
    assert f"start the run in {path.parent}, or with PYTHONPATH={path.parent}" in words


@pytest.mark.parametrize("entry_point", ["__main__:Mine", type("Mine", (), {"__module__": "__main__"})])
def test_an_environment_of_a_notebook_alone_needs_a_module_or_one_process(
    monkeypatch: pytest.MonkeyPatch, entry_point: Any
) -> None:
    import gymnasium

    monkeypatch.setitem(gymnasium.registry, "Mine-v0", gymnasium.envs.registration.EnvSpec("Mine-v0", entry_point))
    data: dict[str, Any] = {
        "env": {"id": "Mine-v0"},
        "policy": {"name": "actor_critic"},
        "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
    }
    with pytest.raises(ConfigErrors) as caught:
        load_mapping({**data, "cluster": {"backend": "ray"}}, source="notebook")
    assert "env.id: Mine-v0 is defined by this script or notebook alone" in str(caught.value)
    assert "write mine:Mine-v0; or set cluster.backend: local" in str(caught.value)
    assert load_mapping({**data, "cluster": {"backend": "local"}}, source="notebook").env.id == "Mine-v0"


def test_functions_of_a_notebook_need_a_module_or_one_process(write: Write) -> None:
    path = write(
        "env: {id: 'rlinf_envs:rlinf/Math-v0', kwargs: {path: a.jsonl, reward: {custom: {'__main__:mine': 1.0}}}}\n"
        "algorithm: {loss_type: '__main__:my_loss'}\n"
        "cluster: {backend: ray}\n"
    )
    words = mistakes(path)
    assert "env.kwargs.reward.custom: mine is defined by this script or notebook alone" in words
    assert "algorithm.loss_type: my_loss is defined by this script or notebook alone" in words
    assert "write mine:my_loss; or set cluster.backend: local" in words
