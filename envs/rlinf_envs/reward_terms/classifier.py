"""``reward_model``: a sequence classifier of Hugging Face, with its own tokenizer, scores question and response."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_envs.errors import RewardError, SettingError
from rlinf_envs.suggest import unknown
from rlinf_envs.workers import Memory, WorkerPool

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

_OUTPUTS = ("logit", "probability")


def reward_model(
    *,
    path: str,
    label: int = 0,
    output: str = "logit",
    max_tokens: int = 2048,
    threads: int = 1,
    timeout_s: float = 120.0,
) -> RewardTerm:
    """Return the classifier's output for the chat of question and response, in a process of its own.

    Args:
        path: folder or name of a model with a sequence-classification head and its tokenizer. The tokenizer's
            chat template is used if it has one; else the two texts are one, a line break between.
        label: which output counts. ``output``: the "logit", or the "probability" (softmax; sigmoid of a single
            output).
        max_tokens: what is longer loses its beginning.
        threads: of the process.
        timeout_s: CPU time of one response; loading the model counts.
    """
    if output not in _OUTPUTS:
        raise SettingError(f"reward.reward_model.output: {unknown('output', output, _OUTPUTS)}")
    folder = Path(path).expanduser()
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise SettingError(f"reward.reward_model.path: {path} holds no model (it has no config.json)")
    if not folder.is_dir() and len(Path(path).parts) != 2:
        raise SettingError(f"reward.reward_model.path: there is no folder {path}")
    where = str(folder.resolve()) if folder.is_dir() else path
    # A model's weights do not fit under the limit that keeps verifiers small.
    pool = WorkerPool("rlinf_envs.reward_terms.classifier_worker:score", timeout_s=timeout_s, memory=Memory(0))

    def term(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
        [outcome] = pool.map([(where, prompt, response, label, output == "probability", max_tokens, threads)])
        if outcome.status == "timeout":
            raise RewardError(f"did not answer within {timeout_s:g} s (reward.reward_model.timeout_s)")
        if outcome.status != "done":
            raise RewardError(f"failed: {outcome.value or 'its process ended (no memory left?)'}")
        return float(outcome.value)

    return term
