"""Facts that every sampler of a run needs in addition to its configuration section."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rlinf.base.random_streams import stream_seed
from rlinf.schema import PolicyConfig
from rlinf.schema.policy import VisionConfig
from rlinf.schema.rollout import TransferBackend


@dataclass(frozen=True)
class SamplerSpec:
    """Facts that a sampler needs in addition to its configuration section."""

    model: str
    """A folder with a transformers model, or the hub name of one."""
    eos_token_ids: tuple[int, ...]
    pad_token_id: int
    seed: int
    max_model_len: int
    """Prompt plus response tokens."""
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "auto"] = "auto"
    """Of weights and activations; ``auto`` is float32 on a CPU and bfloat16 on a GPU."""
    float32_logits: bool = False
    """Whether the product with the output embedding is in float32, whatever ``dtype`` is."""
    attention: str = "sdpa"
    """Of the ``hf`` sampler."""
    random_weights: bool = False
    """The folder holds a configuration only; the weights come by ``load`` before the first sample."""
    vision: VisionConfig = field(default_factory=VisionConfig)
    """How a vision-language model reads pictures."""
    excluded: tuple[int, ...] = ()
    """Ids that are never drawn: those that have to do with pictures."""
    placeholder: int | None = None
    """The vocabulary's own token for a feature of a picture; None if it has none."""
    transfer: TransferBackend | None = None
    """How weights travel in vLLM's own transfer; None if they come otherwise."""


def sampler_spec(
    policy: PolicyConfig,
    tokenizer: Any,
    folder: Path,
    *,
    seed: int,
    max_model_len: int,
    device: str,
    turn_ends: Collection[int] = (),
    transfer: TransferBackend | None = None,
) -> SamplerSpec:
    """Collect the facts for every sampler.

    Without a checkpoint it gets a folder with the model's configuration alone. ``seed`` is the run's; ``folder``
    its directory. ``turn_ends``: tokens that end the policy's turn in its chat template. ``transfer``: see the spec.
    """
    from rlinf.models.architecture import PolicyError, architecture_config, require_text_model
    from rlinf.models.gguf import model_folder
    from rlinf.models.loading import checkpoint_config
    from rlinf.models.response_ends import declared_ends, listed
    from rlinf.models.vision.families import family_of
    from rlinf.models.vision.reading import excluded_ids, picture_reader, save_processor
    from rlinf.models.vocabulary import require_vocabulary

    if policy.path is None:
        model = str(folder / "architecture")
        architecture = architecture_config(policy.architecture, tokenizer)
        require_text_model(architecture, "policy.architecture")
        architecture.architectures = [_causal_class(architecture)]
        reader = picture_reader(architecture, None, policy.vision)
        if architecture.model_type == "qwen3_vl":
            # transformers has no other order of the axes, and other engines require it.
            architecture.get_text_config().rope_parameters["mrope_interleaved"] = True
        try:
            architecture.save_pretrained(model)
            if reader is not None:
                save_processor(reader, model)
                tokenizer.save_pretrained(model)
        except (IsADirectoryError, NotADirectoryError) as error:
            raise PolicyError(f"the model's configuration cannot be written, {error}: remove what is there") from error
    else:
        model = model_folder(policy.path)
        architecture = checkpoint_config(model)
        require_text_model(architecture, "policy.path")
        require_vocabulary(architecture.get_text_config().vocab_size, tokenizer, model=model)
    family = family_of(architecture)
    declared = listed([architecture.get_text_config().eos_token_id]) if policy.path is None else declared_ends(model)
    return SamplerSpec(
        model=model,
        eos_token_ids=tuple(sorted({tokenizer.eos_token_id, *declared, *turn_ends})),
        pad_token_id=tokenizer.pad_token_id,
        seed=stream_seed(seed, "sampler"),
        max_model_len=max_model_len,
        device=device,
        dtype=policy.dtype,
        float32_logits=policy.logits_dtype == "float32",
        attention=policy.attention,
        random_weights=policy.path is None,
        vision=policy.vision,
        excluded=excluded_ids(architecture, tokenizer),
        placeholder=None if family is None else tokenizer.get_vocab().get(family.feature),
        transfer=transfer,
    )


def _causal_class(architecture: Any) -> str:
    """Return the class name that other engines find a model by."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    )

    names = {**MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, **MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    return str(names[architecture.model_type])
