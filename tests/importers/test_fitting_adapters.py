"""Adapters of every peer: an import keeps them, with the learner that trains them."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlinf_import.page import page, problems
from rlinf_import.reading import imported
from rlinf_import.settle import about_files
from rlinf_import.sheet import Options, Sheet

VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=4 \\
  actor_rollout_ref.model.path=m actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.lora_alpha=16 \\
  actor_rollout_ref.model.target_modules=all-linear trainer.n_gpus_per_node=4 {}
"""
VERL_SFT = """torchrun --nnodes=1 --nproc_per_node=4 -m verl.trainer.sft_trainer data.train_files=rows.parquet \\
  model.path=m model.lora_rank=8 model.lora_alpha=16 engine=megatron engine.tensor_model_parallel_size=2 \\
  trainer.total_epochs=1
"""
ROLL = """
adv_estimator: grpo
pretrain: m
num_return_sequences_in_group: 4
rewards: {math: {worker_cls: MathRuleRewardWorker}}
actor_train:
  model_args: {lora_target: "o_proj,q_proj", lora_rank: 16, lora_alpha: 64}
  strategy_args: {strategy_name: NAME, strategy_config: {tensor_model_parallel_size: 2}}
  device_mapping: list(range(0,4))
actor_infer: {device_mapping: "list(range(0,4))", strategy_args: {strategy_name: vllm}}
"""
RLINF = """
runner: {task_type: reasoning, max_steps: 4, seq_length: 512}
cluster: {num_nodes: 1, component_placement: {"actor,rollout": 0-3}}
data: {max_prompt_length: 256, rollout_batch_size: 8}
algorithm: {adv_type: grpo, group_size: 4}
reward: {reward_type: math}
actor: {training_backend: fsdp, model: {is_lora: True, lora_rank: 32, model_path: m}}
"""
MEGATRON = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"
CASES = {
    "verl, fsdp": ("verl", "run.sh", VERL.format("actor_rollout_ref.actor.strategy=fsdp"), 32),
    "verl, megatron": ("verl", "run.sh", VERL.format(MEGATRON), 32),
    "verl, supervised": ("verl", "run.sh", VERL_SFT, 8),
    "ROLL, fsdp": ("roll", "run.yaml", ROLL.replace("NAME", "fsdp2_train"), 16),
    "ROLL, megatron": ("roll", "run.yaml", ROLL.replace("NAME", "megatron_train"), 16),
    "RLinf, fsdp": ("rlinf", "run.yaml", RLINF, 32),
}


def sheet_of(case: str, folder: Path) -> Sheet:
    peer, name, text, _ = CASES[case]
    (folder / name).write_text(text)
    return imported(peer, folder / name, (), Options(rows=64))


@pytest.mark.parametrize("case", CASES)
def test_adapters_stay_and_torch_trains_them_with_the_same_ranks(case: str, tmp_path: Path) -> None:
    sheet = sheet_of(case, tmp_path)
    assert sheet.value("policy.lora.rank") == CASES[case][3]
    assert sheet.value("policy.lora.target_modules")
    assert (sheet.value("learner.backend"), sheet.value("learner.num_workers")) == ("torch", 4)
    assert [key for key in sheet.settings if key.startswith("learner.megatron.")] == []
    assert [str(found) for found in problems(sheet) if not about_files(found)] == []


@pytest.mark.parametrize("case", CASES)
def test_the_written_file_has_the_reason_for_another_backend(case: str, tmp_path: Path) -> None:
    line = next(line for line in page(sheet_of(case, tmp_path)).splitlines() if line.startswith("  backend:"))
    assert line.startswith("  backend: torch")
    assert "adapters are imported for torch, each rank of which holds the whole base model" in line


def test_without_adapters_the_backend_stays(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(VERL.format(MEGATRON).replace("lora_rank=32", "lora_rank=0"))
    sheet = imported("verl", script, (), Options(rows=64))
    assert (sheet.value("learner.backend"), sheet.value("learner.megatron.tensor_parallel")) == ("megatron", 2)
    assert "policy.lora.rank" not in sheet.settings
