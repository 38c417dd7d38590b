"""A causal language model as a policy: any transformers model, with an optional value head or low-rank adapters.

A sampler (``rlinf/samplers``) acts for it; ``evaluate`` is here. A test holds their log-probabilities equal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlinf.data.inputs import Inputs, TextInputs
from rlinf.data.messages import PolicyOutput, SamplingParams
from rlinf.models.adapters import AdaptedPolicy, merged_weights, separate_weights
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.distribution import processed_logits, without
from rlinf.models.liger_scores import liger_covers, liger_logprobs
from rlinf.models.output_layer import OutputLayer, use_float32_logits
from rlinf.models.progress_bars import without_progress_bars
from rlinf.models.response_model import ResponseModel
from rlinf.models.token_scores import chunk_elements, covers, token_scores
from rlinf.models.vision.reading import PictureReader, save_processor


class CausalLMPolicy(ResponseModel, AdaptedPolicy):
    """``evaluate`` gives log-probabilities of the sampling distribution, entropy and values for given responses."""

    def __init__(
        self,
        model: Any,
        *,
        sampling: SamplingParams,
        value_head: bool = False,
        pack_rows: bool = True,
        autocast: torch.dtype | None = None,
        reader: PictureReader | None = None,
        excluded: Sequence[int] = (),
        liger: bool = False,
        float32_logits: bool = False,
    ) -> None:
        """``model``: a transformers causal LM (or a peft model around one). ``autocast``: dtype of activations.

        ``reader``: of a vision-language model. ``excluded``: ids that no sampler draws. ``liger``: log-probabilities
        are computed by Liger Kernel. ``float32_logits``: whatever ``autocast`` is.
        """
        super().__init__(model, pack_rows=pack_rows, autocast=autocast, reader=reader)
        self.sampling, self.excluded = sampling, tuple(excluded)
        self._liger, self.float32_logits = liger, float32_logits
        if float32_logits:
            use_float32_logits(model)
        self.value_head = nn.Linear(model.config.get_text_config().hidden_size, 1) if value_head else None
        if self.value_head is not None:
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)

    def own_adapters(self) -> Iterator[nn.Parameter]:
        """Return the low-rank adapters alone: a critic has no reference."""
        return (parameter for name, parameter in self.model.named_parameters() if ".lora_" in name)

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Compute log-probabilities, entropy and values [B, T] float32 of ``actions`` [B, T]; 0 where ``mask`` is
        false.

        ``inputs`` are :class:`rlinf.data.batch.TextInputs`.
        """
        text = TextInputs.of(inputs)
        prompts, lengths, responses = text.prompt_ids, text.prompt_lengths, text.response_lengths
        if int(responses.max()) == 0:
            empty = torch.zeros(mask.shape, device=mask.device)
            return PolicyOutput(empty, empty if with_entropy else None, empty if self.value_head is not None else None)
        with nullcontext() if self.autocast is None else torch.autocast(prompts.device.type, dtype=self.autocast):
            hidden, rows, columns = self.states(prompts, lengths, actions, responses, text.picture_lists(), text.routes)
            acted = mask[rows, columns]
            if not bool(acted.all()):
                rows, columns, hidden = rows[acted], columns[acted], hidden[acted]
            seen = self._seen(text, actions, rows, columns)
            logprobs, entropy = self._score(hidden, actions[rows, columns], seen, with_entropy)
            values = None if self.value_head is None else self.value_head(hidden.float())[:, 0]

        def spread(positions: Tensor) -> Tensor:
            return torch.zeros(mask.shape, device=mask.device).index_put((rows, columns), positions.float())

        return PolicyOutput(
            logprobs=spread(logprobs),
            entropy=spread(entropy) if with_entropy else None,
            values=None if values is None else spread(values),
        )

    def forward(self, inputs: Inputs, actions: Tensor, mask: Tensor) -> PolicyOutput:
        return self.evaluate(inputs, actions, mask)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the language model's parameters by the names of checkpoint files; adapters are merged into their
        layers."""
        if not self.is_lora:
            yield from by_expert(_untied(self.model))
            return
        yield from by_expert(_merged(self.model.get_base_model()))

    def separate_weights(self) -> Iterator[tuple[str, Tensor, bool]]:
        """Yield the same with adapters separate from their layers, and whether each changes in training."""
        base = self.model.get_base_model()
        untied = {name.replace(".base_layer.", ".") for name, _ in _untied(base)}
        for name, tensor, changes in separate_weights(base):
            if name.partition("@")[0] in untied:
                yield from ((own, part, changes) for own, part in by_expert([(name, tensor)]))

    def save_pretrained(self, folder: str) -> None:
        """Write a folder that transformers loads: adapters are merged, and also in ``adapter`` for peft.

        Of a vision-language model with its image processor.
        """
        with without_progress_bars():
            if self.is_lora:
                self.model.save_pretrained(os.path.join(folder, "adapter"))
                base = self.model.get_base_model()
                base.save_pretrained(folder, state_dict=dict(_merged(base)))
            else:
                self.model.save_pretrained(folder)
        if self.reader is not None:
            save_processor(self.reader, folder)

    @property
    def _vocabulary(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    def _score(self, hidden: Tensor, tokens: Tensor, seen: Tensor | None, with_entropy: bool) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy [S] of hidden states [S, H], a bounded share of the logits at a time.

        Few logits go through plain autograd: nothing has to be made twice, and small models keep their exact numbers.
        """
        output = OutputLayer.of(self.model)
        of_liger = self._liger and not with_entropy and not self.excluded
        if of_liger and output.linear and liger_covers(output.head, self.sampling):
            chosen = liger_logprobs(hidden, output.head, tokens, self.sampling)
            return chosen, torch.zeros_like(chosen)
        size = max(1, chunk_elements(hidden.device.type) // self._vocabulary)
        if hidden.shape[0] <= size:
            return self._score_part(output, hidden, tokens, seen, with_entropy)
        if output.linear and covers(output.head, self.sampling) and not self.excluded:
            dtype = torch.float32 if self.float32_logits else None
            return token_scores(hidden, output.head, tokens, self.sampling, with_entropy=with_entropy, dtype=dtype)
        parts = [
            checkpoint(
                self._score_part, output, hidden[i : i + size], tokens[i : i + size],
                None if seen is None else seen[i : i + size], with_entropy, use_reentrant=False,
            )
            for i in range(0, hidden.shape[0], size)
        ]  # fmt: skip
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def _score_part(
        self,
        output: Callable[[Tensor], Tensor],
        hidden: Tensor,
        tokens: Tensor,
        seen: Tensor | None,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        logits = processed_logits(without(output(hidden), self.excluded), self.sampling, seen=seen, chosen=tokens)
        logprobs = logits.log_softmax(-1)
        chosen = logprobs.gather(-1, tokens[:, None])[:, 0]
        if not with_entropy:
            return chosen, torch.zeros_like(chosen)
        finite = logprobs.masked_fill(logprobs == -torch.inf, 0.0)
        return chosen, -(logprobs.exp() * finite).sum(-1)

    def _seen(self, inputs: TextInputs, actions: Tensor, rows: Tensor, columns: Tensor) -> Tensor | None:
        """[S, V] bool: what stands before each position, for the repetition penalty."""
        if self.sampling.repetition_penalty == 1.0:
            return None
        prompts, lengths = inputs.prompt_ids, inputs.prompt_lengths
        size = (actions.shape[0], self._vocabulary)
        valid = (torch.arange(prompts.shape[1], device=prompts.device) < lengths[:, None]) & (prompts >= 0)
        present = torch.zeros(size, dtype=torch.bool, device=prompts.device)
        owner = torch.arange(size[0], device=prompts.device)[:, None].expand_as(prompts)
        present[owner[valid], prompts[valid]] = True
        steps = []
        for column in range(actions.shape[1]):
            steps.append(present.clone())
            own = actions[:, column]
            present[owner[own >= 0, 0], own[own >= 0]] = True  # feature tokens are none of the vocabulary
        return torch.stack(steps, dim=1)[rows, columns]


def _untied(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers; a tied output embedding appears once, under its input's name."""
    for name, parameter in model.named_parameters():
        yield name, parameter.detach()


def _merged(base: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the same with adapters added to their layers, which stay as they are.

    Taking adapters out again would leave a rounding in the base after each step."""
    untied = {name.replace(".base_layer.", ".") for name, _ in _untied(base)}
    return ((name, tensor) for name, tensor in merged_weights(base) if name in untied)
