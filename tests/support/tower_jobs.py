"""A tiny policy with towers, a batch of its decisions, and what a gang's processes do with them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from learner_cases import make_stage
from torch import Tensor

from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import Metrics
from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.learners.offload import STAY
from rlinf.learners.torch import TorchLearner
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_vla
from rlinf.models.vla.deciding import VisionLanguageAction
from rlinf.schema.learner import OffloadConfig

WORDS = ("touch the red disc", "push the blue square")
SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (16, 16, 3), np.uint8),
        "state": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "instruction": spaces.Text(32),
    }
)
ARM = spaces.Box(-1.0, 1.0, (2,), np.float32)
_LAYERS = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
LANGUAGE = {"model_type": "qwen2", "num_key_value_heads": 2, **_LAYERS}
VISION = {"model_type": "siglip_vision_model", "patch_size": 8, "vision_use_head": False, **_LAYERS}
ROWS, DECISIONS, CHUNK = 5, 3, 2


def tower_policy(flow_steps: int = 0, dtype: str = "float32") -> VisionLanguageAction:
    """With a state that is normalised by running statistics, and conditioning of the vision tower."""
    tokenizer = train_tokenizer(WORDS, vocab_size=290, split_words=True)
    options = VlaOptions(
        language=LANGUAGE,
        vision=VISION,
        action_bins=5,
        num_action_chunks=CHUNK,
        flow_steps=flow_steps,
        flow_hidden=16,
        conditioning="film",
        normalize_observations=True,
        dtype=dtype,
    )
    torch.manual_seed(3)
    return build_vla(SPACE, ARM, options, tokenizer)


def tower_batch(policy: VisionLanguageAction, seed: int = 0) -> Batch:
    """Rows of drawn decisions, of which some did not happen."""
    random = np.random.default_rng(seed)
    leaves = empty_leaves(SPACE, (ROWS * DECISIONS,))
    for row in range(ROWS * DECISIONS):
        observation = {
            "image": random.integers(0, 256, (16, 16, 3), dtype=np.uint8),
            "state": random.uniform(-1, 1, 2).astype(np.float32),
            "instruction": WORDS[row % 2],
        }
        write_observation(leaves, row, observation)
    flat = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
    drawn = random.random if policy.noise_kind == "uniform" else random.standard_normal
    noise = torch.from_numpy(drawn((ROWS * DECISIONS, policy.noise_size))).float()
    actions, _ = policy.step(flat, torch.zeros(len(noise), 0), noise)
    mask = torch.arange(DECISIONS) < torch.tensor([[3], [2], [3], [1], [3]])
    columns = torch.from_numpy(random.standard_normal((2, ROWS, DECISIONS))).float()
    return Batch(
        inputs=ObservationInputs(
            {name: leaf.unflatten(0, (ROWS, DECISIONS)) for name, leaf in flat.items()},
            executed=mask[..., None].expand(-1, -1, CHUNK),
        ),
        actions=actions.unflatten(0, (ROWS, DECISIONS)),
        mask=mask,
        rollout_logprobs=columns[0] * mask,
        rewards=columns[0].sum(1),
        group_ids=torch.arange(ROWS) // 2,
        policy_version=torch.zeros(ROWS, DECISIONS, dtype=torch.int32),
        advantages=columns[1] * mask,
    )


def settings(policy: VisionLanguageAction, offload: OffloadConfig = STAY) -> dict[str, Any]:
    """Of a learner: two decisions fit a micro-batch."""
    stage = make_stage(minibatches=2)
    tokens = 2 * policy.tokens_per_decision
    return {"stages": (stage,), "seed": 5, "micro_batch_tokens": tokens, "offload": offload}


def trained(learner: Any, batch: Batch, *, sleeps: bool = False) -> tuple[list[Metrics], dict[str, Tensor]]:
    """Metrics of three updates, and the weights afterwards."""
    metrics = []
    for step in range(3):
        if sleeps:
            learner.sleep()
            learner.wake()
        with_old = batch.replace(old_logprobs=batch.rollout_logprobs)
        metrics.append(learner.update(with_old, step=step))
    return metrics, {name: tensor.clone() for name, tensor in learner.weights(version=1).tensors.items()}


def train_on_one(flow_steps: int, dtype: str) -> tuple[list[Metrics], dict[str, Tensor]]:
    """With the torch learner."""
    policy = tower_policy(flow_steps, dtype)
    return trained(TorchLearner(policy, **settings(policy)), tower_batch(tower_policy(flow_steps)))


def train_split(
    flow_steps: int, dtype: str, offload: OffloadConfig
) -> tuple[list[Metrics], dict[str, Tensor], dict[str, Tensor]]:
    """The same with FSDP; also the weights of an export."""
    from rlinf.learners.fsdp_towers import TowersFSDPLearner

    policy = tower_policy(flow_steps, dtype)
    learner = TowersFSDPLearner(policy, **settings(policy, offload))
    metrics, weights = trained(learner, tower_batch(tower_policy(flow_steps)), sleeps=offload != STAY)
    with tempfile.TemporaryDirectory() as folder:
        learner.export(Path(folder))
        if learner.rank:
            return metrics, weights, {}
        exported = type(policy).from_pretrained(folder)
        return metrics, weights, {name: tensor.clone() for name, tensor in exported.weights()}


def save_and_continue(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of three updates after a checkpoint, by the learner that wrote it and by one that read it."""
    from rlinf.learners.fsdp_towers import TowersFSDPLearner

    def learner() -> TowersFSDPLearner:
        policy = tower_policy()
        return TowersFSDPLearner(policy, **settings(policy))

    batch, straight, resumed = tower_batch(tower_policy()), learner(), learner()
    trained(straight, batch)
    straight.save(folder)
    resumed.load(folder)
    return trained(straight, batch)[1], trained(resumed, batch)[1]
