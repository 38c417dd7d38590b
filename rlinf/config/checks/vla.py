"""Vision-language-action policies: what their towers are made of, and what they cannot do."""

from __future__ import annotations

from pathlib import Path

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.config.context import Context
from rlinf.config.derived import has_warm_start, is_off_policy, is_vla, uses_openvla, uses_pi0, uses_published
from rlinf.schema import TowerConfig
from rlinf.schema.derived import INSTRUCTION

_NOT_OF_PI0 = (
    "policy.vla.language",
    "policy.vla.vision",
    "policy.vla.order",
    "policy.flow.hidden_size",
    "policy.gradient_checkpointing",
)
_NOT_OF_PUBLISHED = (
    *_NOT_OF_PI0,
    "policy.vla.cameras",
    "policy.vla.center_crop",
    "policy.vla.image_mean",
    "policy.vla.image_std",
    "policy.vla.max_instruction_tokens",
    "policy.vla.prompt",
    "policy.flow.steps",
    "policy.flow.pi0",
    "policy.tokenizer.vocab_size",
    "policy.tokenizer.split_digits",
)
_NOT_OF_OPENVLA = (
    "policy.vla.language.path",
    "policy.vla.language.architecture",
    "policy.vla.vision.path",
    "policy.vla.vision.architecture",
    "policy.vla.vision.conditioning",
    "policy.vla.vision.patch_init",
    "policy.vla.vision.stem",
    "policy.vla.order",
    "policy.vla.action_tokens",
    "policy.vla.action_bins",
    "policy.vla.action_statistics",
    "policy.vla.raw_actions",
    "policy.vla.image_mean",
    "policy.vla.image_std",
    "policy.tokenizer.path",
    "policy.tokenizer.vocab_size",
    "policy.tokenizer.split_digits",
)
_OF_OPENVLA = (
    "decoding",
    "horizon",
    "statistics",
    "pictures",
    "gripper",
    "noise_level",
    "diffusion_steps",
    "trained_diffusion_steps",
)
_WHOLE_MODELS = ("openvla", "prismatic")
"""model_type of checkpoints whose decoder, two fused vision towers and projector are one model."""
_EXAMPLES = {"language": "qwen2", "vision": "siglip_vision_model"}


def check_vla(context: Context) -> None:
    """Check that a tower has one origin, that images have three channels, and that decisions are drawn."""
    config = context.config
    if not is_vla(config):
        return
    for key, path in (
        ("policy.path", config.policy.path),
        ("policy.vla.language.path", config.policy.vla.language.path),
        ("policy.vla.vision.path", config.policy.vla.vision.path),
    ):
        context.run(_refuse_whole_model, key, path)
    if config.policy.path is not None:
        return
    towers = {"language": config.policy.vla.language, "vision": config.policy.vla.vision}
    for name, tower in {} if uses_openvla(config) else towers.items():
        context.run(_check_tower, f"policy.vla.{name}", tower, _EXAMPLES[name])
    vision = config.policy.vla.vision
    if vision.path is not None:
        why = f"is not read: policy.vla.vision.path ({vision.path}) brings its own patch embedding."
        for name in ("patch_init", "stem"):
            context.unread(f"policy.vla.vision.{name}", why, "Take it out.")
    context.run(_check_openvla if uses_openvla(config) else _check_action_tokens)
    prompt = config.policy.vla.prompt
    if prompt is not None and INSTRUCTION not in prompt:
        message = f"policy.vla.prompt has no {INSTRUCTION}: every instruction would read alike."
        context.error(
            "policy.vla.prompt", message, f'For example: "In: What action should the robot take to {INSTRUCTION}?"'
        )
    for name in ("image_mean", "image_std"):
        values = getattr(config.policy.vla, name)
        if values is not None and (len(values) != 3 or (name == "image_std" and min(values) <= 0)):
            message = f"policy.vla.{name} needs three numbers{' above 0' if name == 'image_std' else ''}, not {values}."
            context.error(f"policy.vla.{name}", message, "For example: [0.5, 0.5, 0.5].")
    if (config.policy.tokenizer.path or config.policy.vla.language.path) is not None and not uses_openvla(config):
        for name in ("vocab_size", "split_digits"):
            why = "is not read: the tokenizer is loaded, not trained."
            context.unread(f"policy.tokenizer.{name}", why, "Take it out.")
    if uses_pi0(config):
        context.run(_check_tower, "policy.flow.pi0", config.policy.flow.pi0, "pi0")
        for key in _NOT_OF_PI0:
            why = "is not read with policy.flow.pi0, which brings its own towers and velocity."
            context.unread(key, why, "Take it out.")
    if uses_published(config):
        for key in _NOT_OF_PUBLISHED:
            why = "is not read with policy.flow.checkpoint, which brings its own."
            context.unread(key, why, "Take it out.")
    elif config.policy.name == "flow":
        for name in ("backbone", "embodiment", "statistics", "cameras", "flip", "train", "steps"):
            why = "is not read without policy.flow.checkpoint.path."
            context.unread(f"policy.flow.checkpoint.{name}", why, "Set the path of a checkpoint.")
    context.run(_check_advantage)
    if config.policy.name == "flow":
        why = "is not read by policy.name: flow, whose actions are numbers."
        context.unread("policy.vla.action_bins", why, "Take it out.")
        why = "is not read by policy.name: flow; policy.flow.noise_level sets how much is explored."
        context.unread("rollout.temperature", why, "Take it out.")
    elif config.rollout.temperature == 0:
        message = "rollout.temperature 0 would make every member of a group do the same: nothing could be compared."
        context.error("rollout.temperature", message, "Set it to 1.0, or to anything above 0.")
    if is_off_policy(config):
        loss_type = config.algorithm.loss_type
        message = f"policy.name: {config.policy.name} has no critic of actions, which loss_type: {loss_type} needs."
        fix = "Choose adv_type: grpo with loss_type: actor, or policy.name: actor_critic."
        context.error("policy.name", message, fix)


def _check_openvla(context: Context) -> None:
    config = context.config
    chosen, chunk = config.policy.vla.checkpoint, config.env.num_action_chunks
    for key in _NOT_OF_OPENVLA:
        context.unread(key, "is not read with policy.vla.checkpoint, which brings its own.", "Take it out.")
    if chosen.decoding == "sequential":
        context.unread("policy.vla.checkpoint.horizon", "is not read with decoding: sequential.", "Take it out.")
        if chunk > 1:
            message = f"env.num_action_chunks is {chunk}: with decoding: sequential the policy decides on one action."
            context.error("env.num_action_chunks", message, "Set it to 1, or decoding: parallel for OpenVLA-OFT.")
    if chosen.diffusion_steps > chosen.trained_diffusion_steps:
        message = (
            f"policy.vla.checkpoint.diffusion_steps is {chosen.diffusion_steps}, and a head that was trained with "
            f"{chosen.trained_diffusion_steps} steps (trained_diffusion_steps) takes no more."
        )
        fix = f"Set it to {chosen.trained_diffusion_steps} or less."
        context.error("policy.vla.checkpoint.diffusion_steps", message, fix)
    if chosen.decoding.startswith("parallel") and chunk > chosen.horizon:
        message = f"env.num_action_chunks is {chunk}, and a chunk has {chosen.horizon} actions."
        context.error("env.num_action_chunks", message, "Set policy.vla.checkpoint.horizon as it was trained.")
    context.run(_check_openvla_folder)


def _check_openvla_folder(context: Context) -> None:
    """Check what a local folder's JSON files show; the rest is read when the policy is made, and by `rlinf check`."""
    vla = context.config.policy.vla
    key, folder = "policy.vla.checkpoint.path", Path(vla.checkpoint.path or "").expanduser()
    try:
        config = read_json_file(folder / "config.json")
        statistics = read_json_file(folder / "dataset_statistics.json") or (config or {}).get("norm_stats") or {}
    except UserError as error:
        context.error(key, f"{key}: {error}.", "Download the checkpoint again.")
        return
    if config is None:
        return
    if config.get("model_type") != "openvla":
        message = f"{key}: {folder} is of model_type {config.get('model_type')}, and read is openvla."
        context.error(key, message, "For SmolVLA, pi0, pi0.5 and GR00T: policy.flow.checkpoint.path.")
    elif vla.statistics_key not in statistics and f"{vla.statistics_key}_no_noops" not in statistics:
        names = ", ".join(statistics) or "no data set"
        if vla.statistics_key is not None or len(statistics) != 1:
            message = f"policy.vla.statistics_key: {vla.statistics_key} is no data set of {folder}, which has {names}."
            context.error(
                "policy.vla.statistics_key", message, f"For example: {next(iter(statistics), 'bridge_orig')}."
            )


def _check_advantage(context: Context) -> None:
    """Check that an indicator of better decisions is learned, and that guidance has something to start from."""
    config, flow = context.config, context.config.policy.flow
    if not flow.advantage:
        for name in ("advantage_dropout", "guidance"):
            why = "is not read without policy.flow.advantage."
            context.unread(f"policy.flow.{name}", why, "Add advantage: true.")
        return
    if uses_pi0(config) or uses_published(config):
        message = "policy.flow.advantage is learned by the towers of policy.vla, and the policy has others."
        context.error("policy.flow.advantage", message, "Take it out, or policy.flow.pi0 and policy.flow.checkpoint.")
    if not has_warm_start(config) and config.run.init_from is None:
        message = "policy.flow.advantage is learned by imitation, and there is none."
        fix = "Set sft.steps, and sft.dataset if `rlinf label FILE --data DIR` has labelled one."
        context.error("policy.flow.advantage", message, fix)
    if flow.guidance != 1.0 and flow.advantage_dropout == 0:
        message = (
            f"policy.flow.guidance {flow.guidance:g} needs a velocity without the indicator, which nothing trains."
        )
        context.error("policy.flow.guidance", message, "Set policy.flow.advantage_dropout: 0.3.")


def _check_action_tokens(context: Context) -> None:
    vla = context.config.policy.vla
    for name in _OF_OPENVLA:
        why = "is not read without policy.vla.checkpoint.path and policy.name: vla."
        context.unread(f"policy.vla.checkpoint.{name}", why, "Set the path of a checkpoint.")
    if context.config.policy.name == "flow":
        context.unread("policy.vla.checkpoint.path", "is not read by policy.name: flow.", "Set policy.name: vla.")
        why = "is not read by policy.name: flow, whose actions are numbers."
        context.unread("policy.vla.action_tokens", why, "Take it out.")
    if vla.action_tokens == "vocabulary":
        why = "is not read with action_tokens: vocabulary, which has 256."
        context.unread("policy.vla.action_bins", why, "Take it out.")
    else:
        why = "is not read with action_tokens: own, whose bins lie between the environment's bounds."
        context.unread("policy.vla.action_statistics", why, "Set action_tokens: vocabulary.")
    if vla.action_statistics is None:
        for name in ("statistics_key", "raw_actions"):
            why = "is not read without policy.vla.action_statistics."
            context.unread(f"policy.vla.{name}", why, "Take it out.")


def _refuse_whole_model(context: Context, key: str, path: str | None) -> None:
    try:
        written = None if path is None else read_json_file(Path(path).expanduser() / "config.json")
    except UserError:  # a damaged file is for loading to name
        return
    kind = (written or {}).get("model_type")
    if kind in _WHOLE_MODELS:
        message = f"{key}: {path} is a whole {kind} checkpoint, which is not read: towers are loaded one by one."
        fix = "Set policy.vla.checkpoint.path to it (policy.name: vla): it then acts as its original code does."
        context.error(key, message, fix)


def _check_tower(context: Context, key: str, tower: TowerConfig, example: str) -> None:
    if tower.path is not None:
        why = f"is not read: {key}.path ({tower.path}) brings its own."
        context.unread(f"{key}.architecture", why, "Keep one.")
    elif tower.architecture and "model_type" not in tower.architecture:
        message = f"{key}.architecture does not name its model_type."
        context.error(f"{key}.architecture", message, f"Add model_type: {example}, for example.")
    config = context.config
    imitated = config.run.init_from is not None and config.sft.steps == 0
    if tower.freeze and tower.path is None and not imitated:
        message = f"{key}.freeze would keep random weights as they are."
        fix = f"Take it out, set {key}.path, or begin with an imitating run (run.init_from, sft.steps: 0)."
        context.error(f"{key}.freeze", message, fix)
