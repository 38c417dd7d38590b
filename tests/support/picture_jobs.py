"""What ranks train on pictures; every function returns plain tensors and numbers."""

from __future__ import annotations

from typing import Any

import torch
from learner_cases import make_batch
from learner_jobs import weights_as
from torch import Tensor
from vision_models import picture, tiny_vision, tokenizer_of

from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs, picture_column
from rlinf.data.messages import Metrics, SamplingParams
from rlinf.data.pictures import marked
from rlinf.learners.stage import Stage
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import add_lora
from rlinf.models.vision.families import freeze_encoder
from rlinf.rollouts.text.tokens.prompts import PromptRenderer

MICRO_BATCH_TOKENS = 96


def picture_policy(model_type: str, *, frozen: bool = False, adapted: bool = False) -> CausalLMPolicy:
    """A tiny vision-language model as a policy."""
    model, reader = tiny_vision(model_type, tokenizer_of(model_type))
    if frozen:
        freeze_encoder(model)
    if adapted:
        model = add_lora(model, rank=2, alpha=4, dropout=0.0, target_modules=["o_proj", "up_proj"], seed=3)
    return CausalLMPolicy(model, sampling=SamplingParams(max_new_tokens=8), reader=reader)


def picture_batch(policy: CausalLMPolicy, model_type: str, *, seed: int) -> Batch:
    """Four groups of three rows, whose prompts have a picture, two of them, or none at all in half of the groups."""
    given = make_batch(seed=seed)
    renderer = PromptRenderer(tokenizer_of(model_type), reader=policy.reader)
    shown = [[], [picture(seed)], [], [picture(seed, 28, 56), picture(seed + 100)]]
    prompts = [torch.tensor(renderer.prompt("".join(map(marked, own)) + "Which?")) for own in shown]
    rows = given.group_ids.tolist()
    inputs = TextInputs(
        torch.nn.utils.rnn.pad_sequence([prompts[group] for group in rows], batch_first=True),
        torch.tensor([len(prompts[group]) for group in rows]),
        TextInputs.of(given.inputs).response_lengths,
        pictures=picture_column([shown[group] for group in rows]),
    )
    return given.replace(inputs=inputs)


def train_on_pictures(learner: Any, model_type: str, batches: int) -> tuple[list[Metrics], dict[str, Tensor]]:
    """Metrics of some updates, and the weights after them."""
    metrics = []
    for step in range(batches):
        batch = picture_batch(learner.policy, model_type, seed=step)
        metrics.append(learner.update(batch, step=step))
    return metrics, weights_as(learner, "merged")


def train_on_pictures_fsdp(
    stage: Stage, model_type: str, batches: int, options: dict[str, bool]
) -> tuple[list[Metrics], dict[str, Tensor]]:
    """The same on the ranks of a group."""
    from rlinf.learners.fsdp import FSDPLearner

    policy = picture_policy(model_type, **options)
    learner = FSDPLearner(policy, stages=(stage,), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS)
    return train_on_pictures(learner, model_type, batches)
