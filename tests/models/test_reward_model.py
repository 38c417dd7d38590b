"""A reward model's scores are those of the library that its checkpoint comes from, and labels move them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlinf.algorithms.preferences import judging_metrics
from rlinf.data.batch import Batch
from rlinf.data.inputs import named_inputs
from rlinf.learners.reward import RewardLearner
from rlinf.models.loading import PolicyError, blank_reward_model, load_reward_model
from rlinf.models.reward_model import RewardModel

close = torch.testing.assert_close


def architecture(**changes):
    from transformers import Qwen2Config

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return Qwen2Config(
        vocab_size=37, num_key_value_heads=2, tie_word_embeddings=True, pad_token_id=0, **{**sizes, **changes}
    )


def classifier(kind: str, outputs: int):
    import transformers

    torch.manual_seed(0)
    config = architecture()
    config.num_labels = outputs
    model = getattr(transformers, f"Qwen2For{kind}")(config).eval()
    torch.nn.init.normal_(model.score.weight)
    return model


def examples(rows: int = 12, positions: int = 8) -> Batch:
    """Responses of unequal length; right is what ends with an even token."""
    generator = torch.Generator().manual_seed(3)
    responses = torch.randint(1, positions + 1, (rows,), generator=generator)
    actions = torch.randint(2, 37, (rows, positions), generator=generator)
    groups = torch.arange(rows) % 3
    last = torch.zeros(rows, positions, dtype=torch.bool)
    last[torch.arange(rows), responses - 1] = True
    labels = torch.where(last, (actions % 2 == 0).float(), 0.0)
    return Batch(
        inputs=named_inputs(
            {
                "prompt_ids": torch.randint(2, 37, (3, 5), generator=generator)[groups],
                "prompt_lengths": torch.tensor([5, 3, 4])[groups],
                "response_lengths": responses,
                "labels": labels,
            }
        ),
        actions=actions,
        mask=last,
        rollout_logprobs=torch.zeros(rows, positions),
        rewards=torch.zeros(rows),
        group_ids=groups,
        policy_version=torch.zeros(rows, positions, dtype=torch.int32),
        advantages=torch.ones(rows, positions),
    )


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("kind", "outputs"), [("TokenClassification", 2), ("SequenceClassification", 1)])
def test_a_loaded_checkpoint_scores_as_its_library_does(tmp_path: Path, kind: str, outputs: int, packed: bool) -> None:
    model = classifier(kind, outputs)
    model.save_pretrained(tmp_path)
    batch = examples()
    expected = []
    for row in range(batch.num_rows):
        length, answered = int(batch.inputs.prompt_lengths[row]), int(batch.inputs.response_lengths[row])
        tokens = torch.cat([batch.inputs.prompt_ids[row, :length], batch.actions[row, :answered]])[None]
        logits = model(input_ids=tokens).logits[0]
        logits = logits[-1] if kind == "TokenClassification" else logits
        expected.append(logits[-1] - logits[0] if outputs == 2 else logits[0])
    loaded = RewardModel(load_reward_model(str(tmp_path)), pack_rows=packed)
    output = loaded.evaluate(batch.inputs, batch.actions, batch.mask)
    assert output.values is not None
    close(output.values[batch.mask], torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert output.values[~batch.mask].eq(0).all()


def test_labels_are_judged_by_their_cross_entropy() -> None:
    model = RewardModel(classifier("TokenClassification", 1))
    batch = examples()
    output = model.evaluate(batch.inputs, batch.actions, batch.mask)
    scores, labels = output.values[batch.mask], batch.inputs.labels[batch.mask]
    close(-output.logprobs[batch.mask].mean(), torch.nn.functional.binary_cross_entropy_with_logits(scores, labels))
    without = replace(batch.inputs, labels=None)
    assert model.evaluate(without, batch.actions, batch.mask).values.equal(output.values)


@pytest.mark.slow
def test_a_blank_head_scores_zero_until_it_has_learned() -> None:
    from transformers import Qwen2ForCausalLM

    torch.manual_seed(1)
    policy = Qwen2ForCausalLM(architecture())
    model = RewardModel(blank_reward_model(policy.config))
    learner = RewardLearner(model, lr=1e-2, seed=0, micro_batch_tokens=40)
    learner.adopt(dict(policy.named_parameters()))
    close(model.model.model.embed_tokens.weight, policy.model.embed_tokens.weight, rtol=0, atol=0)
    batch = examples(rows=48)
    scored, labels = batch.mask, batch.inputs.labels[batch.mask]
    assert learner.evaluate(batch)[1].values.eq(0).all()
    for step in range(40):
        learner.update(batch, step=step)
    order, output = learner.evaluate(batch)
    found = judging_metrics(output.values[order.argsort()][scored], labels)
    assert found["auc"] > 0.95
    assert found["loss"] < 0.4


def test_another_architecture_is_not_adopted() -> None:
    model = RewardModel(blank_reward_model(architecture()))
    with pytest.raises(ValueError, match="cannot start from the policy"):
        model.adopt({})


def test_a_checkpoint_without_a_head_is_refused(tmp_path: Path) -> None:
    from transformers import Qwen2ForCausalLM

    Qwen2ForCausalLM(architecture()).save_pretrained(tmp_path / "language")
    with pytest.raises(PolicyError, match="Qwen2ForCausalLM"):
        load_reward_model(str(tmp_path / "language"))
    classifier("TokenClassification", 5).save_pretrained(tmp_path / "five")
    with pytest.raises(PolicyError, match="1 or 2 outputs"):
        load_reward_model(str(tmp_path / "five"))
    with pytest.raises(PolicyError, match=r"no reward model could be loaded|holds no model configuration"):
        load_reward_model(str(tmp_path / "nothing"))
