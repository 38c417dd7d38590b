"""Columns of pictures: verl's image_key and what TRL's scripts read of their rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlinf_import.reading import imported
from rlinf_import.refusal import NotOfferedError
from rlinf_import.sheet import Options, Sheet

VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=4 \\
  data.train_files=geo3k/train.parquet data.image_key=images actor_rollout_ref.model.path={} \\
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.enforce_eager=False trainer.n_gpus_per_node=4 {}
"""
TRL = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward

rows = load_dataset("lmms-lab/multimodal-open-r1-8k-verified", split="train")
rows = rows.filter(lambda row: row["image"].size[0] < 512)
trainer = GRPOTrainer("{}", reward_funcs=accuracy_reward, args=GRPOConfig(use_vllm=True), train_dataset=rows)
trainer.train()
"""


def sheet_of(tmp_path: Path, name: str, text: str) -> Sheet:
    path = tmp_path / name
    path.write_text(text)
    return imported("verl" if name.endswith(".sh") else "trl", path, (), Options(rows=64))


def test_the_image_key_of_verl_becomes_the_image_field(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, "run.sh", VERL.format("Qwen/Qwen2.5-VL-7B-Instruct", ""))
    assert sheet.value("env.kwargs.image_field") == "images"
    assert sheet.value("rollout.sampler") == "hf"
    assert sheet.value("learner.backend") == "torch"
    assert not [ours for ours in sheet.settings if ours.startswith("rollout.vllm.")]


@pytest.mark.parametrize(
    ("model", "added"), [("OpenGVLab/InternVL3-8B", ""), ("Qwen/Qwen2.5-VL-7B-Instruct", "data.video_key=videos")]
)
def test_models_that_are_not_read_and_videos_are_refused(tmp_path: Path, model: str, added: str) -> None:
    with pytest.raises(NotOfferedError, match="prompts with images, sound or video"):
        sheet_of(tmp_path, "run.sh", VERL.format(model, added))


def test_the_column_that_a_script_of_trl_reads_becomes_the_image_field(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, "grpo_vlm.py", TRL.format("Qwen/Qwen2.5-VL-3B-Instruct"))
    assert sheet.value("env.kwargs.image_field") == "image"
    assert sheet.value("rollout.sampler") == "hf"


def test_a_script_of_trl_with_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotOfferedError, match="prompts with images, sound or video"):
        sheet_of(tmp_path, "grpo_vlm.py", TRL.format("OpenGVLab/InternVL3-1B"))
