"""Parts of a GR00T checkpoint that are not read."""

from __future__ import annotations

from pathlib import Path

from rlinf.models.vla.published.groot_checkpoint import KEY, NEEDED, SUPPORTED, GrootCheckpoint
from rlinf.models.vla.published.shards import shards
from rlinf.models.vla.published.unread import UNKNOWN, Unread, unread_files, unread_kinds

_READ = {
    *NEEDED,
    "model_type",
    "num_timestep_buckets",
    "use_alternate_vl_dit",
    "attend_text_every_n_blocks",
    "vl_self_attention_cfg",
    *(name for name in SUPPORTED if "." not in name),
}
_OF_TENSORS = "sizes are read off the tensors"
_OF_PROCESSOR = "processor_config.json decides"
_OF_TRAINING = "of NVIDIA's own training; learner and sft have their keys"
_PRECISION = "policy.dtype decides"
_TUNED = "policy.flow.checkpoint.train decides"
_WITHOUT_EFFECT = {
    **dict.fromkeys(("backbone_embedding_dim", "hidden_size", "input_embedding_dim", "max_seq_len"), _OF_TENSORS),
    **dict.fromkeys(("max_num_embodiments", "add_pos_embed", "use_vlln"), _OF_TENSORS),
    **dict.fromkeys(("image_crop_size", "image_target_size", "shortest_image_edge", "crop_fraction"), _OF_PROCESSOR),
    **dict.fromkeys(("use_albumentations_transforms", "use_percentiles", "formalize_language"), _OF_PROCESSOR),
    **dict.fromkeys(("use_relative_action", "apply_sincos_state_encoding"), _OF_PROCESSOR),
    **dict.fromkeys(("random_rotation_angle", "color_jitter_params", "extra_augmentation_config"), _OF_TRAINING),
    **dict.fromkeys(("attn_dropout", "state_dropout_prob"), _OF_TRAINING),
    **dict.fromkeys(("noise_beta_alpha", "noise_beta_beta", "noise_s"), _OF_TRAINING),
    **dict.fromkeys(("model_dtype", "dtype", "torch_dtype", "load_bf16", "backbone_trainable_params_fp32"), _PRECISION),
    **dict.fromkeys(("tune_llm", "tune_visual", "tune_top_llm_layers", "tune_projector"), _TUNED),
    **dict.fromkeys(("tune_diffusion_model", "tune_vlln"), _TUNED),
    "use_flash_attention": "attention is computed by torch",
    "backbone_model_type": "the backbone's own config.json has it",
    "model_revision": "the newest is fetched",
    "rtc_ramp_rate": "a request to the policy server sets how a chunk is guided (previous, delay)",
}
OF_PICTURES = (
    "image_crop_size",
    "image_target_size",
    "shortest_image_edge",
    "crop_fraction",
    "use_albumentations",
    "letter_box_transform",
)
"""Keys by which pictures are cut and scaled."""
_PROCESSOR_READ = {
    *("modality_configs", "use_percentiles", "use_relative_action", "clip_outliers", "formalize_language"),
    *OF_PICTURES,
}
_PROCESSOR_WITHOUT_EFFECT = {
    "state_dropout_prob": _OF_TRAINING,
    "random_rotation_angle": _OF_TRAINING,
    "color_jitter_params": _OF_TRAINING,
    "extra_augmentation_config": _OF_TRAINING,
    "model_name": "config.json names the backbone",
    "model_type": "config.json names the backbone",
    "transformers_loading_kwargs": "of transformers' own loading",
    "apply_sincos_state_encoding": "modalities name the groups",
    **dict.fromkeys(("max_state_dim", "max_action_dim", "max_action_horizon"), "config.json has it"),
}
_MODALITY_READ = {"delta_indices", "modality_keys", "action_configs"}
_GROUP_READ = {"rep", "type", "format", "state_key"}
_BLOCKS = ("diffusion_model_cfg", "vl_self_attention_cfg")
_BLOCKS_READ = {"num_attention_heads", "norm_eps", "interleave_self_attention"}
_BLOCKS_WITHOUT_EFFECT = {
    **dict.fromkeys(("num_layers", "attention_head_dim", "output_dim", "cross_attention_dim"), _OF_TENSORS),
    **dict.fromkeys(("attention_bias", "norm_elementwise_affine"), _OF_TENSORS),
    **dict.fromkeys(("dropout", "final_dropout"), _OF_TRAINING),
    **dict.fromkeys(("upcast_attention", "compute_dtype"), _PRECISION),
    **dict.fromkeys(("num_embeds_ada_norm", "max_num_positional_embeddings"), "of embeddings that there are not"),
}
_FILES = (
    *("config.json", "processor_config.json", "statistics.json", "embodiment_id.json"),
    *("model.safetensors.index.json", "policy_preprocessor.json", "policy_postprocessor.json"),
)
_ANOTHER = "of another embodiment"


def unread_of(checkpoint: GrootCheckpoint) -> list[Unread]:
    """List everything in the folder that is not read: keys of JSON files, embodiments, statistics, tensors."""
    from transformers import PreTrainedConfig

    generic, result = PreTrainedConfig().to_dict(), []
    for name in checkpoint.config:
        if name not in _READ:
            why = _WITHOUT_EFFECT.get(name) or ("of transformers' own loading" if name in generic else None)
            result.append(Unread(f"config.json: {name}", why or UNKNOWN, why is None))
    for part in _BLOCKS:
        for name in checkpoint.config.get(part) or {}:
            whole = f"{part}.{name}"
            if name not in _BLOCKS_READ and whole not in SUPPORTED:
                why = _BLOCKS_WITHOUT_EFFECT.get(name)
                result.append(Unread(f"config.json: {whole}", why or UNKNOWN, why is None))
    for name in checkpoint.processor:
        if name not in _PROCESSOR_READ:
            why = _PROCESSOR_WITHOUT_EFFECT.get(name)
            result.append(Unread(f"processor_config.json: {name}", why or UNKNOWN, why is None))
    for kind, settings in checkpoint.processor["modality_configs"][checkpoint.embodiment].items():
        result += [
            Unread(f"processor_config.json: {kind}.{key}", "LeRobot does not read it either", True)
            for key, value in settings.items()
            if key not in _MODALITY_READ and value
        ]
        result += [
            Unread(f"processor_config.json: {kind}.action_configs.{key}", UNKNOWN, True)
            for key in sorted({key for group in settings.get("action_configs") or () for key in group} - _GROUP_READ)
        ]
    result += [Unread(f"processor_config.json, statistics.json: {name}", _ANOTHER, False) for name in checkpoint.others]
    result += [Unread(*each) for each in checkpoint.more_unread]
    result += _unread_statistics(checkpoint)
    if checkpoint.folder is not None:
        read = {*_FILES, *(file.name for file in shards(Path(checkpoint.folder), KEY))}
        if checkpoint.prefix:
            read |= {file.name for file in Path(checkpoint.folder).glob("policy_*.safetensors")}
        result += unread_files(checkpoint.folder, read)
    return result + [Unread(f"tensor {name}", "no action depends on it", False) for name in checkpoint.without_effect()]


def _unread_statistics(checkpoint: GrootCheckpoint) -> list[Unread]:
    """List the statistics of the embodiment that scale nothing."""
    file, result = f"{'raw_stats' if checkpoint.prefix else 'statistics.json'}: ", []
    relative = checkpoint.references
    read: dict[str, dict[str, tuple[str, ...]]] = {
        name: dict.fromkeys(checkpoint.modality(name)["modality_keys"], checkpoint.kinds_of_ends)
        for name in ("state", "action")
    }
    read["action"] |= dict.fromkeys(relative, ())
    read["relative_action"] = dict.fromkeys(relative, ("min", "max"))
    for name, groups in checkpoint.statistics.items():
        if name not in read:
            result.append(Unread(file + name, UNKNOWN, True))
            continue
        for group, there in groups.items():
            if group in read[name]:
                result += unread_kinds(f"{file}{name}.{group}", there, read[name][group])
            else:
                result.append(Unread(f"{file}{name}.{group}", "no modality names it", False))
    return result
