"""The weights of architectures that no formula covers: made without memory for them, on torch's device "meta"."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.models.architecture_numbers import read_architecture
from rlinf.planning.memory import TRAINED_BYTES, WEIGHT_BYTES
from rlinf.schema import PolicyConfig


def counted(written: Mapping[str, object], *, causal: bool) -> int | None:
    """Count the weights of an architecture; None if it cannot be made.

    ``causal``: with the output layer of a language model."""
    if "model_type" not in written:
        return None
    from rlinf.models.architecture import PolicyError, count_parameters

    try:
        return count_parameters(written, causal=causal)
    except PolicyError:
        return None


def text_memory(policy: PolicyConfig) -> tuple[int, int] | None:
    """Return the parameters of a policy of text, and bytes of its weights, gradients and optimiser.

    None if its architecture cannot be made, or is not on this machine."""
    parameters = counted(with_vocabulary(policy, read_architecture(policy)), causal=True)
    if parameters is None:
        return None
    return parameters, parameters * (WEIGHT_BYTES + (0 if policy.lora.rank else TRAINED_BYTES))


def with_vocabulary(policy: PolicyConfig, written: Mapping[str, object]) -> Mapping[str, object]:
    """Return an architecture whose vocabulary, if it has none, is that of the tokenizer trained for the run."""
    return {"vocab_size": policy.tokenizer.vocab_size, **written} if policy.tokenizer.path is None else written
