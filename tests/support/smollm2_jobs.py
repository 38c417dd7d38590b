"""What the ranks of a gang do with the real weights."""

from __future__ import annotations

from typing import Any

import torch
from learner_cases import make_stage
from learner_jobs import all_weights
from smollm2 import FOLDER, rows
from torch import Tensor

from rlinf.data.batch import Batch
from rlinf.data.messages import PolicyOutput, SamplingParams
from rlinf.schema.learner import MegatronConfig

SAMPLING = SamplingParams(max_new_tokens=16)


def real_batch() -> Batch:
    inputs, actions, mask = rows()
    return Batch(
        inputs=inputs,
        actions=actions,
        mask=mask,
        rollout_logprobs=torch.zeros(mask.shape),
        rewards=torch.zeros(len(mask)),
        group_ids=torch.arange(len(mask)),
        policy_version=torch.zeros(mask.shape, dtype=torch.int32),
        advantages=torch.ones(mask.shape) * mask,
    )


def loaded(layout: MegatronConfig | None) -> Any:
    """A learner with the weights of the folder; no layout is FSDP."""
    options = {"stages": (make_stage(),), "seed": 0, "micro_batch_tokens": 256}
    if layout is None:
        from rlinf.learners.fsdp import FSDPLearner
        from rlinf.models.causal_lm import CausalLMPolicy
        from rlinf.models.loading import load_causal_lm

        return FSDPLearner(CausalLMPolicy(load_causal_lm(str(FOLDER)), sampling=SAMPLING), **options)
    from transformers import AutoConfig

    from rlinf.learners.megatron.learner import MegatronLearner
    from rlinf.learners.shards import SafetensorsFolder

    config = AutoConfig.from_pretrained(FOLDER)
    return MegatronLearner(config, SafetensorsFolder.of(str(FOLDER)), layout=layout, sampling=SAMPLING, **options)


def evaluate_real(layout: MegatronConfig | None) -> tuple[Tensor, PolicyOutput, list[str], int]:
    """(rows, its outputs for them, names of weights unlike the folder's, number of weights); weights are rank 0's."""
    from safetensors.torch import load_file

    learner = loaded(layout)
    order, output = learner.evaluate(real_batch())
    found = all_weights(learner)
    stored = load_file(FOLDER / "model.safetensors")
    differing = [name for name, tensor in found.items() if not torch.equal(tensor.float(), stored[name].float())]
    return order, PolicyOutput(output.logprobs), differing, len(found)
