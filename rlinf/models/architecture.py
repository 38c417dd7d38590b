"""Architectures of language models: the transformers configuration that a policy names, and whether it can be run."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from rlinf.base.errors import UserError
from rlinf.models.checkpoint_files import without_token_head
from rlinf.models.vision.families import FAMILIES, REFUSED, family_of
from rlinf.models.vocabulary import require_vocabulary

_KEY = "policy.architecture"
_TRIED = 30_000_000
"""Parameters of a model that is made to try it: about 0.2 s."""


class PolicyError(UserError):
    """A policy or tokenizer that can't be made; the message states what to change."""


def architecture_config(architecture: Mapping[str, Any], tokenizer: Any) -> Any:
    """Build the transformers configuration of ``policy.architecture``. Raises PolicyError for an impossible one."""
    options = dict(architecture)
    model_type = options.pop("model_type", None)
    if model_type is None:
        raise PolicyError(f"{_KEY} needs model_type (qwen2, llama, ...) where policy.path is not set")
    # A vision-language model has the sizes of its decoder in a section of their own.
    text = dict(options.get("text_config", {})) if model_type in FAMILIES else options
    text.setdefault("vocab_size", len(tokenizer))
    size = text["vocab_size"]
    if isinstance(size, bool) or not isinstance(size, int):
        raise PolicyError(f"{_KEY}.vocab_size must be a whole number, not {size!r}; without it the tokenizer's counts")
    require_vocabulary(size, tokenizer, model=_KEY)
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    if text is not options:
        options["text_config"] = {**special, **text}
    config = named_config({"model_type": model_type, **special, **options})
    if text is not options:
        _require_sections(config, options)
    _require_heads(config)
    return config


def named_config(options: Mapping[str, Any]) -> Any:
    """Build the transformers configuration of a ``model_type``; PolicyError if there is none, or it refuses a value."""
    from transformers import CONFIG_MAPPING, AutoConfig

    model_type = str(options["model_type"])
    if model_type not in CONFIG_MAPPING:
        close = difflib.get_close_matches(model_type.lower(), CONFIG_MAPPING, n=1)
        meant = f"; did you mean {close[0]}?" if close else "."
        raise PolicyError(
            f"{_KEY}.model_type: the transformers library has no {model_type!r}{meant} "
            "For example: qwen2, llama, mistral."
        )
    try:
        return AutoConfig.for_model(**options)
    except Exception as error:  # each architecture checks its values in its own way
        raise PolicyError(f"{_KEY}: {model_type} refuses a value: {in_one_line(error)}") from error


def in_one_line(error: Exception) -> str:
    """Join a message's lines, because transformers lists what it tried on lines of their own."""
    return " ".join(str(error).split())


def require_text_model(config: Any, key: str) -> None:
    """Raise PolicyError if no model of this type is trained as a policy of text; ``key`` names the policy."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    kind = config.model_type
    wrong = without_token_head(config.to_dict()) if config.architectures else None  # of a checkpoint
    if wrong is not None:
        raise PolicyError(f"{key}: {wrong}. Take a causal language model, for example qwen2, qwen3 or llama.")
    if kind in FAMILIES and not REFUSED.get(kind):
        return
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        why = REFUSED.get(kind, "which is none of the vision-language models that are trained here")
        known = ", ".join(FAMILIES)
        raise PolicyError(f"{key}: {kind}: {why}. Take one of {known}, or a model of text (qwen2, llama).")
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return
    raise PolicyError(f"{key}: {kind} is no causal language model. Take one, for example qwen2, qwen3 or llama.")


def _require_sections(config: Any, options: Mapping[str, Any]) -> None:
    """Raise PolicyError if sizes of the decoder stand outside its section, where transformers does not read them."""
    own, text = dataclasses.fields(config), dataclasses.fields(config.get_text_config())
    outside = {field.name for field in text} - {field.name for field in own}
    if misplaced := [name for name in options if name in outside]:
        raise PolicyError(
            f"{_KEY}: {config.model_type} reads {', '.join(misplaced)} in a section of its own. "
            f"Write {_KEY}.text_config: {{{misplaced[0]}: ...}}."
        )


def _require_heads(config: Any) -> None:
    """Raise PolicyError if query heads cannot share the key and value heads evenly."""
    text = config.get_text_config()
    heads, shared = getattr(text, "num_attention_heads", None), getattr(text, "num_key_value_heads", None)
    if isinstance(heads, int) and isinstance(shared, int) and shared > 0 and heads % shared:
        raise PolicyError(
            f"{_KEY}: num_attention_heads {heads} is no multiple of num_key_value_heads {shared}. "
            f"Set {_KEY}.num_key_value_heads to a divisor of {heads}."
        )


def random_causal_lm(config: Any, *, dtype: torch.dtype = torch.float32, attention: str | None = None) -> Any:
    """Build a model with random weights; PolicyError if transformers can't make one of these values."""
    attention = supported_attention(config, attention)
    chosen = {} if attention is None else {"attn_implementation": attention}
    try:
        return model_class(config).from_config(config, dtype=dtype, trust_remote_code=False, **chosen)
    except Exception as error:  # widths that do not divide, an attention that the class lacks
        raise PolicyError(f"{_KEY}: no {config.model_type} can be made: {in_one_line(error)}") from error


def count_parameters(architecture: Mapping[str, Any], *, causal: bool) -> int:
    """Count the weights of an architecture, of which none is made; ``causal``: with the output layer of a language
    model. PolicyError if transformers refuses it.

    What the architecture leaves out has the values of transformers, often those of a published model."""
    from transformers import AutoModel
    from transformers.initialization import no_init_weights

    config = named_config(architecture)
    try:
        with torch.device("meta"), no_init_weights():
            model = (model_class(config) if causal else AutoModel).from_config(config, trust_remote_code=False)
    except Exception as error:  # as in random_causal_lm
        raise PolicyError(f"no {config.model_type} can be made: {in_one_line(error)}") from error
    return sum(parameter.numel() for parameter in model.parameters())


def unset_causal_lm(config: Any, *, dtype: torch.dtype, attention: str | None = None) -> Any:
    """Build a model whose weights are zero until others arrive: random ones take seconds a billion of weights.

    Buffers, such as those of rotary embeddings, have their values. Errors as of :func:`random_causal_lm`.
    """
    from transformers.initialization import no_init_weights

    with no_init_weights():
        model = random_causal_lm(config, dtype=dtype, attention=attention)
    model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def supported_attention(config: Any, attention: str | None) -> str | None:
    """Return ``eager`` instead of ``sdpa`` for models whose scores have a soft cap, as those of Gemma 2.

    transformers' ``sdpa``, which is also the default for None, leaves the cap out without a word.
    """
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    return "eager" if capped and attention in (None, "sdpa") else attention


def require_packs(model: Any) -> None:
    """Raise PolicyError if layers of a transformers model would mix packed rows: their attention, or what they have
    instead of it, is their own."""
    if not getattr(model, "_supports_attention_backend", False):
        kind = model.config.get_text_config().model_type
        raise PolicyError(f"learner.pack: layers of {kind} read across packed rows. Set learner.pack: false.")


def model_class(config: Any) -> Any:
    """Return the class of transformers that makes and loads models of this configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForCausalLM if family_of(config) is None else AutoModelForImageTextToText


@unset_fake_temporarily()  # a rehearsal has shapes without values
@torch.no_grad()
def require_runs(config: Any, attention: str | None = None) -> None:
    """Raise PolicyError if a model of this configuration does not predict tokens as a policy must.

    A small one is made and run on a few tokens; of a large one nothing is tried.
    """
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in random_causal_lm(config, attention=attention).parameters())
    if size > _TRIED:
        return
    model = random_causal_lm(config, attention=attention).eval()
    tokens = torch.tensor([[1, 2, 3, 4]]) % config.get_text_config().vocab_size
    kind = f"{_KEY}: {config.model_type}"
    try:
        # What the sampler does: a prompt, and then a token that reads its keys and values.
        first = model(input_ids=tokens, use_cache=True, attention_mask=torch.ones_like(tokens))
        kept = getattr(first, "past_key_values", None)
        if kept is None:
            raise PolicyError(f"{kind} keeps no keys and values, which samplers read. Take qwen2, qwen3 or llama.")
        other = model(input_ids=torch.cat([tokens[:, :-1], tokens[:, :1]], 1)).logits
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(f"{kind} of these sizes fails on a prompt of 4 tokens: {in_one_line(error)}") from error
    if not torch.allclose(first.logits[:, :-1], other[:, :-1], atol=1e-4):
        raise PolicyError(f"{kind} reads the tokens after a token too: it is no causal model. Set is_decoder: true.")
