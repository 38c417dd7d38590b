"""The common part of policies and reward models: a transformer that reads prompts and responses, packed or padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.data.batch import Costs
from rlinf.data.inputs import Inputs, TextInputs, fit
from rlinf.models import packed_attention
from rlinf.models.architecture import PolicyError, require_packs
from rlinf.models.packing import pack, text_costs
from rlinf.models.routing import replayed
from rlinf.models.vision.families import encoder_parameters, text_decoder
from rlinf.models.vision.features import decoder_inputs
from rlinf.models.vision.reading import PictureReader


class ResponseModel(nn.Module):
    """A transformers model that provides the hidden states before each response token."""

    positions_independent = False
    """The outputs of a token depend on the tokens before it: rows stay whole."""
    encoder_in_every_pass = False
    """Whether weights that only pictures meet get a gradient, of 0 if need be, from a pass without pictures too."""

    def __init__(
        self, model: Any, *, pack_rows: bool, autocast: torch.dtype | None, reader: PictureReader | None = None
    ) -> None:
        """``autocast``: dtype of activations. ``reader``: of a vision-language model."""
        super().__init__()
        self.model = model
        self.pack_rows = pack_rows
        self.autocast = autocast
        self.reader = reader
        if pack_rows:
            require_packs(text_decoder(model))
            packed_attention.register()
            (model if reader is None else text_decoder(model)).set_attn_implementation(packed_attention.NAME)

    @property
    def is_lora(self) -> bool:
        return hasattr(self.model, "disable_adapter")

    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """Do nothing after each batch: a language model keeps no running statistics of its inputs."""

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        """Tokens of each row; packed rows pay their prompt once for all that share it."""
        return text_costs(TextInputs.of(inputs), packed=self.pack_rows)

    def states(
        self,
        prompts: Tensor,
        lengths: Tensor,
        actions: Tensor,
        responses: Tensor,
        pictures: Sequence[Sequence[str]] = (),
        routes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states [S, H] that predict the S response tokens, with the row and the column of each.

        ``prompts`` [B, P] of ``lengths`` [B], ``actions`` [B, T] of which the first ``responses`` [B] are tokens;
        ``pictures`` [B] addresses of each row's pictures, where any row has some. ``routes`` [B, L, E] as of
        `TextInputs`: the experts of tokens are replayed.
        """
        if not self.pack_rows:
            return self._padded(prompts, lengths, actions, responses, pictures, routes)
        packing = pack(prompts, lengths, actions, responses)
        if self.reader is None:
            inputs = {"input_ids": packing.tokens[None], "position_ids": packing.positions[None]}
        else:
            tokens, _ = _sequences(prompts, lengths, actions, responses)
            inputs = self._inputs(tokens, pictures, packing.rows[None], packing.positions[None])
        own = None if routes is None else routes[packing.rows, packing.positions.clamp(max=routes.shape[1] - 1)]
        transformer, before = text_decoder(self.model), packed_attention.layers_attended()
        with replayed(self.model, own):
            hidden = transformer(**inputs, use_cache=False, packing=packing).last_hidden_state[0]
        config = transformer.config.get_text_config()
        attended = packed_attention.layers_attended() - before
        if attended != config.num_hidden_layers:
            of_all = f"{attended} of the {config.num_hidden_layers} layers of {config.model_type}"
            raise PolicyError(f"learner.pack: only {of_all} attend over packed rows. Set learner.pack: false.")
        return hidden.index_select(0, packing.target_index), packing.target_rows, packing.target_columns

    @contextmanager
    def in_float32(self) -> Iterator[None]:
        """Keep activations in float32 inside this context, whatever they usually are."""
        usual, self.autocast = self.autocast, None
        try:
            yield
        finally:
            self.autocast = usual

    def _inputs(
        self, tokens: Tensor, pictures: Sequence[Sequence[str]], rows: Tensor, columns: Tensor
    ) -> dict[str, Any]:
        assert self.reader is not None
        model_inputs = decoder_inputs(self.model, self.reader, tokens, pictures or [()] * len(tokens), rows, columns)
        if self.encoder_in_every_pass and torch.is_grad_enabled():
            for parameter in encoder_parameters(self.model):
                if parameter.requires_grad:
                    model_inputs["inputs_embeds"] = model_inputs["inputs_embeds"] + 0.0 * parameter.flatten()[0]
        return model_inputs

    def _padded(
        self,
        prompts: Tensor,
        lengths: Tensor,
        actions: Tensor,
        responses: Tensor,
        pictures: Sequence[Sequence[str]],
        routes: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the same states without packing: one padded row each. For architectures with attention of their
        own."""
        tokens, valid = _sequences(prompts, lengths, actions, responses)
        columns = torch.arange(tokens.shape[1], device=prompts.device).expand_as(tokens)
        if self.reader is None:
            inputs = {"input_ids": tokens, "position_ids": columns}
        else:
            rows = torch.arange(len(tokens), device=tokens.device)[:, None].expand_as(tokens)
            inputs = self._inputs(tokens, pictures, rows, columns)
        own = None if routes is None else fit(routes, tokens.shape[1], -1).flatten(0, 1)
        with replayed(self.model, own):
            out = text_decoder(self.model)(**inputs, attention_mask=valid.long(), use_cache=False)
        positions = torch.arange(actions.shape[1], device=prompts.device) < responses[:, None]
        rows, target_columns = positions.nonzero(as_tuple=True)
        return out.last_hidden_state[rows, lengths[rows] - 1 + target_columns], rows, target_columns


def _sequences(prompts: Tensor, lengths: Tensor, actions: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
    """Prompts and responses one behind the other, right-padded with 0: int64 [B, L], and which are tokens, bool."""
    total = lengths + responses
    columns = torch.arange(int(total.max()), device=prompts.device).expand(len(total), -1)
    offset = (columns - lengths[:, None]).clamp(0, actions.shape[1] - 1)
    prompt_columns = columns.clamp(max=prompts.shape[1] - 1)
    tokens = torch.where(columns < lengths[:, None], prompts.gather(1, prompt_columns), actions.gather(1, offset))
    valid = columns < total[:, None]
    return tokens.masked_fill(~valid, 0), valid
