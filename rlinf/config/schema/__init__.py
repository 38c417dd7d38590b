"""The typed schema: frozen dataclasses, one per section; the string under a field is its documentation."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rlinf.config.schema.algorithm import (
    AlgorithmConfig,
    OverlongPenaltyConfig,
    RewardNormConfig,
    RolloutCorrectionConfig,
)
from rlinf.config.schema.cluster import ClusterConfig
from rlinf.config.schema.env import DataConfig, EnvConfig, PoolConfig, TaskConfig
from rlinf.config.schema.learner import LearnerConfig, MegatronConfig, OffloadConfig, OptimizerConfig, SftConfig
from rlinf.config.schema.policy import (
    FlowConfig,
    LoraConfig,
    PolicyConfig,
    TokenizerConfig,
    TowerConfig,
    VisionTowerConfig,
    VlaConfig,
)
from rlinf.config.schema.reward_model import RewardModelConfig
from rlinf.config.schema.rollout import RolloutConfig, ServerConfig, VllmConfig
from rlinf.config.schema.run import CheckpointConfig, EvaluationConfig, LoggingConfig, RunConfig
from rlinf.config.schema.teacher import TeacherConfig

if TYPE_CHECKING:
    from rlinf.config.facts import Collection, Facts
    from rlinf.config.stored import Record

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "Config",
    "DataConfig",
    "EnvConfig",
    "EvaluationConfig",
    "FlowConfig",
    "LearnerConfig",
    "LoggingConfig",
    "LoraConfig",
    "MegatronConfig",
    "OffloadConfig",
    "OptimizerConfig",
    "OverlongPenaltyConfig",
    "PolicyConfig",
    "PoolConfig",
    "RewardModelConfig",
    "RewardNormConfig",
    "RolloutConfig",
    "RolloutCorrectionConfig",
    "RunConfig",
    "ServerConfig",
    "SftConfig",
    "TaskConfig",
    "TeacherConfig",
    "TokenizerConfig",
    "TowerConfig",
    "VisionTowerConfig",
    "VlaConfig",
    "VllmConfig",
    "keys",
]


@dataclass(frozen=True)
class Config:
    """One experiment."""

    run: RunConfig = field(default_factory=RunConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    data: DataConfig = field(default_factory=DataConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    reward_model: RewardModelConfig = field(default_factory=RewardModelConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    expressions: Mapping[tuple[str, ...], tuple[str, object]] = field(
        default_factory=dict, compare=False, repr=False, metadata={"key": False}
    )
    # No key of the file: path -> (the ``${oc.env:...}`` written there, its value), for copies that must not hold it.

    @functools.cached_property
    def facts(self) -> Facts:
        """What follows from the configuration, if it passed its checks: derived once, and handed down with it."""
        from rlinf.config.facts import Facts

        return Facts.of(self)

    @functools.cached_property
    def collection(self) -> Collection:
        """The part that rollouts read."""
        from rlinf.config.facts import Collection

        return Collection.of(self)

    @functools.cached_property
    def record(self) -> Record:
        """The copy that a run directory keeps, and compares with."""
        from rlinf.config.stored import Record

        return Record.of(self)


def keys(section: Any) -> list[Field[Any]]:
    """The fields of a section, or of its class, that a file can set."""
    return [item for item in fields(section) if item.metadata.get("key", True)]
