"""`teacher`: a model whose log-probabilities of the policy's own tokens the policy learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlinf.schema.key import key


@dataclass(frozen=True)
class TeacherConfig:
    """For `adv_type: opd`, or with any other by `algorithm.opd_coef`. It has the tokenizer of the policy."""

    path: str | None = key(None, example="Qwen/Qwen2.5-7B-Instruct")
    """A Hugging Face folder or hub name. Like a reference policy it lives in the learner's ranks, whole on each."""
    base_url: str | None = key(None, example="http://host:8000/v1")
    """Instead of `path`: an OpenAI-compatible server that echoes log-probabilities of prompts (`vllm serve`), such
    as http://host:8000/v1."""
    past_policy: Literal["none", "start", "average", "current"] = "none"
    """Instead of `path`: the policy itself, with `hint` or next to another estimator (`algorithm.opd_coef`).
    `start` is the policy at the first step of reinforcement learning; with `policy.lora`, the base with its adapters
    off, which takes no memory. `average` is the exponential moving average of its weights. Either replaces the
    reference policy. `current` is the policy of the step, which takes no memory and needs `hint`."""
    hint: str | None = key(None, example="{prompt} (The right answer is {answer}.)")
    """What the teacher reads instead of the environment's first prompt: a text with `{prompt}` once, and
    `{answer}` (the environment's own), `{demonstration}` (its worked solution) or `{solution}` (another correct
    response of the group). With `past_policy` the policy then teaches itself (OPSD, arXiv:2601.18734; SDPO,
    arXiv:2601.20802). Rows without what it names learn nothing from the teacher. null: it reads what the policy
    reads."""
    average_decay: float = key(0.99, at_least=0, at_most=1, example=0.95)
    """With `past_policy: average`: after each step the average becomes this times itself, and the rest the policy."""
    model: str | None = key(None, example="Qwen/Qwen2.5-7B-Instruct")
    """Name of the teacher on that server; null takes the only model there."""
    api_key_env: str | None = key(None, example="VLLM_API_KEY")
    """With `base_url`: environment variable that holds the server's API key."""
    timeout_s: float = key(300.0, above=0)
    """How long the server may take over one conversation."""
    concurrency: int = key(16, at_least=1)
    """Conversations that are sent to the server at a time."""
    dtype: Literal["float32", "bfloat16", "auto"] = "auto"
    """With `path`: type of weights and activations; `auto` is float32 on CPU and bfloat16 on GPU."""
