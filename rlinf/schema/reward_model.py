"""`reward_model`: a learned reward instead of the environment's, or added to it.

See DeepSeekMath, arXiv:2402.03300, 4.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import key


@dataclass(frozen=True)
class RewardModelConfig:
    supervision: Literal["none", "outcome", "process"] = "none"
    """`outcome` scores a response at its last token, `process` each step where the environment ends it
    (`adv_type: grpo_process`). `none`: there is no reward model."""
    path: str | None = key(None, example="models/judge")
    """A Hugging Face folder with a `score` head (`*ForSequenceClassification`, `*ForTokenClassification`) for the
    policy's tokenizer; null starts from the policy's own weights, with an untrained head."""
    learn_from: Literal["verdicts", "scores", "pairs"] = "verdicts"
    """`verdicts`: right or wrong (cross-entropy). `scores`: the environment's reward, or a step's score, anywhere
    between 0 and 1. `pairs`: of two answers to one prompt the one with more reward scores higher (Bradley-Terry); what
    the reward's zero and unit are is then left open."""
    output: Literal["probability", "logit"] = "probability"
    """What a score is worth: its sigmoid, in [0, 1], or itself."""
    weight: float = key(1.0, at_least=0, at_most=1, example=0.5)
    """Reward = weight * score + (1 - weight) * the environment's."""
    verified_fraction: float = key(0.0, at_least=0, at_most=1, example=0.25)
    """Share of the groups of each batch whose reward is the environment's alone: what outwits the reward model earns
    nothing there."""
    fit_batches: int = key(0, at_least=0)
    """Batches of the first policy's responses that it is trained on, with the environment's verdicts as labels, before
    the first step. 0: it is taken as it is."""
    refresh_every: int = key(0, at_least=0)
    """Steps after which it is trained on the policy's responses since the last time; 0 never. With
    `algorithm.ref_update_every` at the same number this is iterative GRPO."""
    fresh_batches: int = key(0, at_least=0)
    """Batches that the latest policy answers for each such training alone, in addition to those it was trained on."""
    replay_fraction: float = key(0.1, at_least=0, at_most=0.9, example=0.2)
    """Share of responses from earlier iterations in that training."""
    history_rows: int = key(4096, at_least=1)
    """Responses that are kept for that training."""
    epochs: int = key(1, at_least=1)
    """Passes over the responses, each time."""
    batch_rows: int = key(64, at_least=1)
    """Responses of an optimiser step."""
    lr: float = key(3e-4, at_least=0)
    """Learning rate of its training."""
    gpus: float = key(0.0, at_least=0, example=1)
    """GPUs of the process it lives in; 0 is the CPU."""
