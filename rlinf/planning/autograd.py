"""Memory that PyTorch keeps for the backward pass of a transformers decoder on a GPU (`learner.backend` torch and
fsdp).

Counted operation by operation, and held to `rlinf check --rehearse` by a test. On a CPU, where one machine's memory is
shared by everything, `plan/memory.py` has a simpler bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.models.architecture_numbers import Decoder

# Of one layer, the gradients and copies that its backward pass makes beside what the forward pass kept.
_BACKWARD_SHARE = 0.4


@dataclass(frozen=True)
class Pass:
    """A micro-batch on one rank. ``size``: bytes of an activation; ``sharded``: weights are gathered layer by layer."""

    tokens: int
    row_tokens: int
    size: int
    sharded: bool
    recomputed: bool
    chunk: int
    """Logits that are made at a time."""


@dataclass(frozen=True)
class Passing:
    """Bytes at the fullest moment of a forward and backward pass, beside what stays between them."""

    activations: int
    logits: int
    copies: int
    """Weights in 16 bits: autocast's copies, or those that have been gathered, with gradients that are to be split."""

    @property
    def total(self) -> int:
        return self.activations + self.logits + self.copies


def passing(decoder: Decoder, one: Pass) -> Passing:
    """The larger of two moments: the head's backward pass with all activations there, or a single layer's."""
    layer = one.tokens * layer_bytes(decoder, one)
    ends = one.tokens * _ends_bytes(decoder, one)
    kept = decoder.layers * (one.tokens * decoder.hidden * _residual_bytes(one) if one.recomputed else layer) + ends
    head, weights = head_bytes(decoder, one), _weight_copies(decoder, one)
    # With recomputation autocast's copies go at the end of the forward pass; those of one layer come back.
    of_layer = weights if one.sharded or not one.recomputed else weights // decoder.layers
    again = layer if one.recomputed else 0
    at_head = Passing(kept, head, weights)
    in_layer = Passing(kept + again + int(_BACKWARD_SHARE * layer), 0, of_layer + _reduced_bytes(decoder, one))
    return max(at_head, in_layer, key=lambda moment: moment.total)


def layer_bytes(decoder: Decoder, one: Pass) -> int:
    """Bytes kept of one token in one layer.

    Two norms with their float32 insides, the inputs of the projections (autocast makes a copy for each of them),
    queries, keys and values for all heads, the attention's result and its copy for the output projection, the mask as
    numbers, and gate, activated gate, up and their product.
    """
    hidden, size = decoder.hidden, one.size
    query, key_value = decoder.heads * decoder.head_size, decoder.kv_heads * decoder.head_size
    if size == 4:
        norms = 24 * hidden
    elif one.sharded:  # residuals are in 16 bits, as the gathered weights are
        norms = 16 * hidden
    else:
        norms = 26 * hidden
    attention = 5 * query * size + one.row_tokens * size
    if decoder.head_norms:
        attention += (4 + size) * (query + key_value)
    width = decoder.experts_per_token * decoder.expert_width if decoder.experts else decoder.intermediate
    copies = 2 * decoder.experts_per_token * hidden * size
    return norms + attention + 4 * width * size + copies


def head_bytes(decoder: Decoder, one: Pass) -> int:
    """A chunk of logits with its scores and gradient, and the head's gradient before it is added to the rest."""
    values = min(one.tokens * decoder.vocabulary, one.chunk)
    weight = decoder.vocabulary * decoder.hidden
    half = one.size == 2
    return values * (4 + 2 * one.size) + weight * (8 if half else 4)


def _ends_bytes(decoder: Decoder, one: Pass) -> int:
    """Bytes kept of one token outside of layers: the last norm, and the states that are scored."""
    return 4 * decoder.hidden * _residual_bytes(one)


def _residual_bytes(one: Pass) -> int:
    return 2 if one.sharded and one.size == 2 else 4


def _reduced_bytes(decoder: Decoder, one: Pass) -> int:
    """Whole gradients of layers: one that is made, its float32 copy that is reduced, and that of the layer before."""
    layer = (decoder.parameters - decoder.embedding_parameters) // decoder.layers
    return layer * (one.size + 4 + 4) if one.sharded else 0


def _weight_copies(decoder: Decoder, one: Pass) -> int:
    in_layers = decoder.parameters - decoder.embedding_parameters
    if one.sharded:
        # The embeddings stay whole from the forward to the backward pass; of the layers one is used and one comes.
        return one.size * (decoder.embedding_parameters + 2 * in_layers // decoder.layers)
    return 2 * in_layers if one.size == 2 else 0
