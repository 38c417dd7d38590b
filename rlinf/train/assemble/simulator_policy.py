"""The policy of a simulator run from its configuration, the same in every worker."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rlinf.base.random_streams import stream_seed
from rlinf.config import Config
from rlinf.data.granularity import Levels
from rlinf.data.vec_normalize import read_statistics
from rlinf.interfaces import ActingPolicy, ActorCriticPolicy
from rlinf.models.own import is_own, make_own, own_class, own_options
from rlinf.models.own_contract import require_policy
from rlinf.schema.derived import activation_dtype

if TYPE_CHECKING:
    from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
    from rlinf.models.off_policy.networks import OffPolicyNetworks
    from rlinf.models.vla import VlaOptions
    from rlinf.models.vla.action_bins import ActionStatistics
    from rlinf.models.vla.deciding import VisionLanguageAction

OptionsT = TypeVar("OptionsT", bound="ActorCriticOptions | VlaOptions")
# What an exported folder of a policy has its options in.
_OPTIONS = {"actor_critic": "policy.json", "vla": "vla.json", "flow": "vla.json"}


def make_policy(
    config: Config, observation_space: Any, action_space: Any, tokenizer: Path | None = None
) -> ActingPolicy:
    """Build the network for two spaces; its first weights are drawn from the run's seed.

    ``tokenizer`` is a folder, which `policy.name: vla` reads unless `policy.path` brings one. An exported policy
    that does not fit the environment is a UserError.
    """
    import torch

    from rlinf.models.actor_critic.encoders import ObservationEncoder

    own = is_own(config.policy.name)
    if config.policy.path is not None and not own:
        require_fit(config, observation_space, action_space)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(config.run.seed, "policy"))
        if own:
            return _own_policy(config, observation_space, action_space)
        if config.facts.vla:
            return _vla(config, observation_space, action_space, tokenizer)
        policy = _network(config, observation_space, action_space)
    if config.env.normalize_from is not None and config.env.normalize_observations:
        statistics = read_statistics(config.env.normalize_from).observations
        for encoder in (part for part in policy.children() if isinstance(part, ObservationEncoder)):
            encoder.begin_with(statistics)
    return policy


def _network(config: Config, observation_space: Any, action_space: Any) -> ActorCritic | OffPolicyNetworks:
    from rlinf.models.actor_critic import ActorCritic

    if config.facts.off_policy:
        from rlinf.learners.off_policy.kinds import load_networks, networks_of

        loss_type = config.algorithm.loss_type
        if config.policy.path is not None:
            return load_networks(config.policy.path, loss_type)
        kind = networks_of(loss_type, recurrent=config.policy.recurrent != "none")
        return kind(observation_space, action_space, _actor_critic_options(config))
    if config.policy.path is not None:
        return ActorCritic.from_pretrained(config.policy.path, _levels(config))
    return ActorCritic(observation_space, action_space, _actor_critic_options(config))


def make_trained_policy(config: Config, observation_space: Any, action_space: Any, tokenizer: Path) -> ActingPolicy:
    """Build the network as the learner has it: with low-rank adapters on its towers if they are configured."""
    from rlinf.models.adapters import adapt
    from rlinf.models.vla.deciding import VisionLanguageAction

    policy, lora = make_policy(config, observation_space, action_space, tokenizer), config.policy.lora
    if lora.rank > 0:
        assert isinstance(policy, VisionLanguageAction)
        seed = stream_seed(config.run.seed, "lora")
        adapt(
            policy.towers(),
            rank=lora.rank,
            alpha=lora.alpha,
            dropout=lora.dropout,
            target_modules=lora.target_modules,
            seed=seed,
        )
    return policy


def make_off_policy(config: Config, observation_space: Any, action_space: Any) -> OffPolicyNetworks:
    """Build the same if the learner has a replay buffer."""
    policy = make_policy(config, observation_space, action_space)
    return cast("OffPolicyNetworks", policy)


def require_fit(config: Config, observation_space: Any, action_space: Any) -> None:
    """Check that the exported policy of `policy.path` is one for these spaces.

    Raises:
        PolicyError: it is no export of this kind of policy, or decides on chunks of another length.
        SpacesDifferError: it was made for other spaces; the message names the leaf that differs.
    """
    from rlinf.models.actor_critic.export import load_spaces
    from rlinf.models.loading import PolicyError
    from rlinf.rollouts.vec_env.vec_env import SpacesDifferError, unlike_leaves

    path, kind, chunks = config.policy.path, config.policy.name, config.env.num_action_chunks
    assert path is not None
    options = Path(path) / _OPTIONS[kind]
    if not options.exists():
        raise PolicyError(f"policy.path: {path} is no exported policy of policy.name {kind}: no {options}")
    for leaf, (trained, given) in unlike_leaves(load_spaces(Path(path)), (observation_space, action_space)).items():
        had, has = (f"is {space}" if space is not None else "is missing" for space in (trained, given))
        raise SpacesDifferError(
            f"policy.path: the policy in {path} was trained on another environment: its {leaf} space {had}, and that "
            f"of {config.env.id} {has}. Take the environment, env.kwargs and env.wrappers that it was trained with, or "
            "leave policy.path out"
        )
    if kind == "actor_critic":
        _require_same_algorithm(config, path)
    decides = json.loads(options.read_text()).get("num_action_chunks", 1)
    if decides != chunks:
        raise PolicyError(
            f"policy.path: the policy in {path} decides on {decides} actions at a time, and env.num_action_chunks is "
            f"{chunks}. Set env.num_action_chunks: {decides}"
        )


def _require_same_algorithm(config: Config, path: str) -> None:
    """Raise a PolicyError if the exported networks are those of another algorithm."""
    from rlinf.models.actor_critic.export import off_policy_loss
    from rlinf.models.loading import PolicyError

    theirs, ours = off_policy_loss(path), config.algorithm.loss_type if config.facts.off_policy else None
    if theirs != ours:
        trained, requested = (f"algorithm.loss_type {name}" if name else "PPO or GRPO" for name in (theirs, ours))
        raise PolicyError(
            f"policy.path: the policy in {path} has the networks of {trained}, and this run those of {requested}: take "
            "the same algorithm, or leave policy.path out"
        )


def _own_policy(config: Config, observation_space: Any, action_space: Any) -> ActingPolicy:
    """Build the policy of `module:Class`, or load it from its own export."""
    key, policy = "policy.name", config.policy
    kind: Any = own_class(key, policy.name)
    if policy.path is not None:
        loaded: ActingPolicy = kind.from_pretrained(policy.path)
        return loaded
    given = {"num_action_chunks": config.env.num_action_chunks}
    options = {name: value for name, value in given.items() if name in own_options(kind)} | policy.options
    made: ActingPolicy = make_own(key, policy.name, options, observation_space, action_space)
    require_policy(key, policy.name, made, observation_space)
    return made


def _actor_critic_options(config: Config) -> ActorCriticOptions:
    from rlinf.models.actor_critic import ActorCriticOptions

    sizes = tuple(config.policy.hidden_sizes)
    return _filled(ActorCriticOptions, config.policy, config.env, config.algorithm, hidden_sizes=sizes)


def _vla(config: Config, observation_space: Any, action_space: Any, folder: Path | None) -> ActorCriticPolicy:
    from rlinf.models.loading import load_tokenizer
    from rlinf.models.vla import VlaOptions, VlaPolicy
    from rlinf.models.vla.backbones import pixel_statistics
    from rlinf.models.vla.build import build_vla, load_vla
    from rlinf.models.vla.published.openvla_policy import OpenVlaPolicy

    policy, requested = config.policy, config.policy.vla
    if policy.path is not None:
        made = load_vla(
            policy.path, levels=_levels(config), temperature=config.rollout.temperature, dtype=_dtype(config)
        )
    elif config.facts.published:
        made = _published(config, observation_space, action_space, folder)
    elif config.facts.openvla:
        made = _openvla(config, observation_space, action_space, folder)
    elif config.facts.pi0:
        made = _pi0(config, observation_space, action_space, folder)
    else:
        assert folder is not None
        mean, std = pixel_statistics(requested.vision.path)
        options = _filled(
            VlaOptions,
            requested,
            policy,
            config.env,
            config.rollout,
            config.algorithm,
            language=requested.language.architecture,
            vision=requested.vision.architecture,
            image_mean=mean if requested.image_mean is None else tuple(requested.image_mean),
            image_std=std if requested.image_std is None else tuple(requested.image_std),
            cameras=tuple(requested.cameras),
            action_statistics=_action_statistics(config),
            freeze_vision=requested.vision.freeze,
            freeze_language=requested.language.freeze,
            conditioning=requested.vision.conditioning,
            patch_init=requested.vision.patch_init,
            stem=requested.vision.stem,
            flow_steps=policy.flow.steps if policy.name == "flow" else 0,
            flow_noise_level=policy.flow.noise_level,
            flow_hidden=policy.flow.hidden_size,
            flow_draws=policy.flow.draws,
            advantage=policy.flow.advantage,
            guidance=policy.flow.guidance,
            dtype=_dtype(config),
        )
        made = build_vla(
            observation_space,
            action_space,
            options,
            load_tokenizer(str(folder)),
            language_path=requested.language.path,
            vision_path=requested.vision.path,
        )
    if policy.gradient_checkpointing and isinstance(made, VlaPolicy):
        made.language.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if isinstance(made, OpenVlaPolicy):
        made.network.language_model.model.recompute = policy.gradient_checkpointing
    return made


def _pi0(config: Config, observation_space: Any, action_space: Any, folder: Path | None) -> VisionLanguageAction:
    from rlinf.models.loading import load_tokenizer
    from rlinf.models.vla import VlaOptions
    from rlinf.models.vla.build import build_pi0

    policy, flow = config.policy, config.policy.flow
    assert folder is not None
    options = _filled(
        VlaOptions,
        policy.vla,
        policy,
        config.env,
        config.algorithm,
        language={},
        vision=None,
        pi0=flow.pi0.architecture,
        flow_steps=flow.steps,
        flow_noise_level=flow.noise_level,
        flow_draws=flow.draws,
        cameras=tuple(policy.vla.cameras),
        action_statistics=None,
        image_mean=tuple(policy.vla.image_mean or (0.5, 0.5, 0.5)),
        image_std=tuple(policy.vla.image_std or (0.5, 0.5, 0.5)),
        dtype=_dtype(config),
    )
    made = build_pi0(observation_space, action_space, options, load_tokenizer(str(folder)), path=flow.pi0.path)
    made.model.requires_grad_(not flow.pi0.freeze)
    return made


def _published(config: Config, observation_space: Any, action_space: Any, folder: Path | None) -> VisionLanguageAction:
    from rlinf.models.loading import load_tokenizer
    from rlinf.models.vla import VlaOptions
    from rlinf.models.vla.build import build_published
    from rlinf.models.vla.published.reading import read_flow_checkpoint

    policy, chosen = config.policy, config.policy.flow.checkpoint
    assert folder is not None
    assert chosen.path is not None
    checkpoint = read_flow_checkpoint(chosen, config.env.num_action_chunks)
    options = _filled(
        VlaOptions,
        policy.vla,
        policy,
        config.env,
        config.algorithm,
        language={},
        vision=None,
        published={
            "checkpoint": asdict(checkpoint),
            "cameras": dict(chosen.cameras),
            "flip": list(chosen.flip),
            "train": chosen.train,
        },
        flow_steps=chosen.steps or 0,
        flow_noise_level=policy.flow.noise_level,
        flow_draws=policy.flow.draws,
        action_statistics=None,
        image_mean=(0.5, 0.5, 0.5),
        image_std=(0.5, 0.5, 0.5),
        cameras=(),
        dtype=_dtype(config),
    )
    return build_published(observation_space, action_space, options, load_tokenizer(str(folder)), checkpoint)


def _openvla(config: Config, observation_space: Any, action_space: Any, folder: Path | None) -> VisionLanguageAction:
    from rlinf.models.loading import load_tokenizer
    from rlinf.models.vla import VlaOptions
    from rlinf.models.vla.build import build_openvla
    from rlinf.models.vla.published.openvla_checkpoint import OpenVlaCheckpoint

    policy, chosen = config.policy, config.policy.vla.checkpoint
    assert folder is not None
    assert chosen.path is not None
    checkpoint = OpenVlaCheckpoint.read(chosen.path)
    kept = {name: value for name, value in vars(chosen).items() if name != "path"}
    options = _filled(
        VlaOptions,
        policy.vla,
        policy,
        config.env,
        config.rollout,
        config.algorithm,
        language={},
        vision=None,
        openvla={
            **kept,
            "decoding": checkpoint.decoding if chosen.decoding == "auto" else chosen.decoding,
            "statistics_key": policy.vla.statistics_key,
            "checkpoint": asdict(checkpoint),
        },
        action_statistics=None,
        image_mean=(0.5, 0.5, 0.5),
        image_std=(0.5, 0.5, 0.5),
        cameras=tuple(policy.vla.cameras),
        freeze_vision=policy.vla.vision.freeze,
        freeze_language=policy.vla.language.freeze,
        dtype=_dtype(config),
    )
    return build_openvla(observation_space, action_space, options, load_tokenizer(str(folder)), checkpoint)


def _action_statistics(config: Config) -> ActionStatistics | None:
    from rlinf.models.vla.vocabulary_actions import read_action_statistics

    requested = config.policy.vla
    if requested.action_statistics is None:
        return None
    return read_action_statistics(requested.action_statistics, requested.statistics_key, requested.raw_actions)


def _levels(config: Config) -> Levels:
    algorithm = config.algorithm
    return Levels(algorithm.reward_type, algorithm.logprob_type, algorithm.entropy_type)


def _dtype(config: Config) -> str:
    import torch

    return activation_dtype(config.policy.dtype, on_gpu=torch.cuda.is_available())


def _filled(kind: type[OptionsT], *sections: object, **own: Any) -> OptionsT:
    """Options of an exported policy, whose fields are named as the keys: each from the first section that has it."""
    keys = {name: value for section in reversed(sections) for name, value in vars(section).items()}
    return kind(
        **{item.name: keys[item.name] for item in fields(kind) if item.name in keys and item.name not in own}, **own
    )
