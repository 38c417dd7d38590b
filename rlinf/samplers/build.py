"""From configuration to a sampler."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf.base.user_code import imported
from rlinf.samplers.spec import SamplerSpec
from rlinf.schema.derived import activation_dtype
from rlinf.schema.rollout import RolloutConfig

if TYPE_CHECKING:
    from rlinf.interfaces import Sampler
    from rlinf.samplers.hf import HFSampler
    from rlinf.samplers.sight import Sight


def build_sampler(config: RolloutConfig, spec: SamplerSpec) -> Sampler:
    """Build the sampler that ``config.sampler`` names, ready to sample.

    Raises:
        ModuleNotFoundError: it needs a package that is not installed; the message states which and how.
        ValueError: an unknown name, or an impossible setting.
    """
    name = resolve_name(config.sampler, device=spec.device)
    if name in SAMPLERS:
        return SAMPLERS[name](config, spec)
    made: Sampler = imported(name)(config, spec, **config.sampler_options)
    return made


def resolve_name(name: str, *, device: str) -> str:
    """``name``, or what ``auto`` stands for: the fastest that is installed, by ``benchmarks/results/generation.md``.

    On a CPU the transformers loop has led at 1M parameters by a factor, and at 30M it was level with vLLM or ahead, for
    responses of up to 128 tokens; longer ones were not compared. On a GPU it is vLLM, by its design: not measured here.
    """
    if name == "auto":
        return "vllm" if device.startswith("cuda") and importlib.util.find_spec("vllm") is not None else "hf"
    if name not in SAMPLERS and ":" not in name:
        raise ValueError(f"rollout.sampler: {name!r} is not one of auto, {', '.join(SAMPLERS)}")
    return name


def environment(name: str, *, device: str) -> dict[str, str]:
    """Environment variables that the sampler's process needs before it imports torch."""
    if resolve_name(name, device=device) != "vllm":
        return {}
    from rlinf.samplers.vllm import environment as vllm_environment

    return vllm_environment(gpu=device.startswith("cuda"))


def _hf(config: RolloutConfig, spec: SamplerSpec) -> Sampler:
    import torch

    from rlinf.models.architecture import unset_causal_lm
    from rlinf.models.loading import checkpoint_config, load_causal_lm

    torch_dtype: torch.dtype = getattr(torch, activation_dtype(spec.dtype, on_gpu=spec.device != "cpu"))
    if spec.random_weights:
        of_folder = checkpoint_config(spec.model)
        # The learner's weights come before the first request.
        model = unset_causal_lm(of_folder, dtype=torch_dtype, attention=spec.attention)
    else:
        model = load_causal_lm(spec.model, dtype=torch_dtype, attention=spec.attention)
    return hf_sampler(model, config, spec)


def hf_sampler(model: Any, config: RolloutConfig, spec: SamplerSpec) -> HFSampler:
    """Build the ``hf`` sampler around a transformers model that is there already."""
    from rlinf.models.output_layer import use_float32_logits
    from rlinf.samplers.hf import HFSampler

    sampler = HFSampler(
        model.to(spec.device),
        eos_token_ids=spec.eos_token_ids,
        pad_token_id=spec.pad_token_id,
        seed=spec.seed,
        generation_batch_size=config.generation_batch_size,
        max_model_len=spec.max_model_len,
        keep_cache=config.keep_cache,
        sight=_sight(model.config, spec),
        record_routes=config.router_replay,
    )
    if spec.float32_logits:
        use_float32_logits(model)  # after the sampler has exchanged the products of all linear layers
    return sampler


def _sight(architecture: Any, spec: SamplerSpec) -> Sight | None:
    """How a model of this configuration reads pictures; None for a model of text."""
    from rlinf.models.vision.reading import picture_reader
    from rlinf.samplers.sight import Sight

    reader = picture_reader(architecture, None if spec.random_weights else spec.model, spec.vision)
    return None if reader is None else Sight(reader, spec.excluded, spec.placeholder)


def _vllm(config: RolloutConfig, spec: SamplerSpec) -> Sampler:
    from rlinf.models.loading import checkpoint_config
    from rlinf.samplers.vllm import VllmSampler

    return VllmSampler(
        spec.model,
        config.vllm,
        eos_token_ids=spec.eos_token_ids,
        seed=spec.seed,
        max_model_len=spec.max_model_len,
        load_format="dummy" if spec.random_weights else "auto",
        dtype=spec.dtype,
        float32_logits=spec.float32_logits,
        sight=_sight(checkpoint_config(spec.model), spec),
        transfer=spec.transfer,
        record_routes=config.router_replay,
    )


def _server(config: RolloutConfig, spec: SamplerSpec) -> Sampler:
    from rlinf.models.loading import checkpoint_config
    from rlinf.models.weight_update import WeightLayout
    from rlinf.samplers.server import ServerSampler

    layout = WeightLayout.of_folder(spec.model) if Path(spec.model).is_dir() else None
    return ServerSampler(
        config.server,
        eos_token_ids=spec.eos_token_ids,
        seed=spec.seed,
        max_model_len=spec.max_model_len,
        layout=layout,
        abortable=config.over_sampling > 0,
        sight=_sight(checkpoint_config(spec.model), spec),
    )


SAMPLERS: dict[str, Callable[[RolloutConfig, SamplerSpec], Sampler]] = {"hf": _hf, "vllm": _vllm, "server": _server}
"""A new sampler is one file and one entry here; a user's own is ``module:name`` of such a function."""
