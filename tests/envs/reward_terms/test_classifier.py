"""A sequence classifier with its own tokenizer as a reward."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.rewards import RewardSum
from rlinf_envs.tasks import Judgement, Task

from rlinf.models.tokenizer import train_tokenizer


@pytest.mark.slow
def test_a_classifier_scores_question_and_response(tmp_path: Path) -> None:
    import torch
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    tokenizer = train_tokenizer(["good bad question"], vocab_size=280)
    tokenizer.save_pretrained(str(tmp_path))
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_labels=1, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = Qwen2ForSequenceClassification(config).eval()
    model.save_pretrained(str(tmp_path))
    with torch.no_grad():
        wanted = model(**tokenizer("question\ngood", return_tensors="pt")).logits[0, 0].item()
    rewards = RewardSum({"reward_model": {"weight": 1.0, "path": str(tmp_path)}}).score(
        ["question"], ["good"], [Task("question", "", "d")], [Judgement("wrong", 0.0, None)]
    )
    assert rewards.total.tolist() == pytest.approx([wanted], abs=1e-5)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"reward\.reward_model\.path: .* holds no model"):
        RewardSum({"reward_model": {"weight": 1.0, "path": str(tmp_path)}})
    with pytest.raises(SettingError, match="there is no folder nowhere/at/all"):
        RewardSum({"reward_model": {"weight": 1.0, "path": "nowhere/at/all"}})
