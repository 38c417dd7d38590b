"""A learned reward: a transformer with a scalar head, read at the last token or at the end of each step.

Its ``evaluate`` fits the learners: a score s is judged by the log-likelihood ``y s - softplus(s)`` of its label y in
[0, 1] (binary cross-entropy with its sign turned), and reported as the value of its position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlinf.data.inputs import Inputs, TextInputs
from rlinf.data.messages import PolicyOutput
from rlinf.models.progress_bars import without_progress_bars
from rlinf.models.response_model import ResponseModel


class RewardModel(ResponseModel):
    """Scores responses; ``model`` is a transformers model with a head ``score`` of one or two outputs.

    Two outputs are a classification as wrong or right: the score is the difference of the logits.
    """

    def __init__(self, model: Any, *, pack_rows: bool = True, autocast: torch.dtype | None = None) -> None:
        super().__init__(model, pack_rows=pack_rows, autocast=autocast)

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Return ``values``: scores [B, T] float32 after the tokens ``actions`` [B, T], 0 where ``mask`` is false.

        ``inputs`` are `TextInputs`: ``logprobs`` [B, T] are the log-likelihoods of their labels, or
        the scores themselves without labels: the advantage then moves them. There is no entropy.
        """
        # The state after a token is the one that would predict the next: every response gets one more.
        longer = functional.pad(actions, (0, 1))
        text = TextInputs.of(inputs)
        with nullcontext() if self.autocast is None else torch.autocast(actions.device.type, dtype=self.autocast):
            hidden, rows, columns = self.states(text.prompt_ids, text.prompt_lengths, longer, text.response_lengths + 1)
            after = columns > 0
            rows, columns, hidden = rows[after], columns[after] - 1, hidden[after]
            scored = mask[rows, columns]
            rows, columns, hidden = rows[scored], columns[scored], hidden[scored]
            logits = self.model.score(hidden).float()
        scores = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        values = torch.zeros(mask.shape, device=mask.device).index_put((rows, columns), scores)
        labels = text.labels
        if labels is None:
            return PolicyOutput(values, values=values)
        return PolicyOutput(torch.where(mask, labels * values - functional.softplus(values), 0.0), values=values)

    def adopt(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the transformer's weights by those of a language model of the same architecture; the head stays.

        Raises ValueError if a weight is missing or has another shape.
        """
        own = {name: tensor for name, tensor in self.model.named_parameters() if not name.startswith("score.")}
        for name, tensor in own.items():
            if name not in weights or weights[name].shape != tensor.shape:
                raise ValueError(f"the reward model cannot start from the policy: {name} {tuple(tensor.shape)} differs")
            tensor.data.copy_(weights[name])

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    def save_pretrained(self, folder: str) -> None:
        """Write a folder that ``AutoModelForTokenClassification`` (or ``SequenceClassification``) loads."""
        with without_progress_bars():
            self.model.save_pretrained(folder)
