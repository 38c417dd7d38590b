"""The typed schema: frozen dataclasses, one per section; the string under a field is its documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from rlinf.schema.algorithm import (
    AlgorithmConfig,
    OverlongPenaltyConfig,
    RewardNormConfig,
    RolloutCorrectionConfig,
)
from rlinf.schema.cluster import ClusterConfig
from rlinf.schema.env import DataConfig, EnvConfig, PoolConfig, TaskConfig
from rlinf.schema.key import TEXT, section
from rlinf.schema.learner import LearnerConfig, MegatronConfig, OffloadConfig, OptimizerConfig, SftConfig
from rlinf.schema.policy import (
    FlowConfig,
    LoraConfig,
    PolicyConfig,
    TokenizerConfig,
    TowerConfig,
    VisionTowerConfig,
    VlaConfig,
)
from rlinf.schema.reward_model import RewardModelConfig
from rlinf.schema.rollout import RolloutConfig, ServerConfig, VllmConfig
from rlinf.schema.run import CheckpointConfig, EvaluationConfig, LoggingConfig, RunConfig
from rlinf.schema.teacher import TeacherConfig

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "ClusterConfig",
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
    "Sections",
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
class Sections:
    """All sections of an experiment file, by their names."""

    run: RunConfig = section(RunConfig)
    env: EnvConfig = section(EnvConfig)
    data: DataConfig = section(DataConfig, read_by=TEXT)
    policy: PolicyConfig = section(PolicyConfig)
    rollout: RolloutConfig = section(RolloutConfig)
    algorithm: AlgorithmConfig = section(AlgorithmConfig)
    reward_model: RewardModelConfig = section(RewardModelConfig, read_by=TEXT)
    teacher: TeacherConfig = section(TeacherConfig, read_by=TEXT)
    learner: LearnerConfig = section(LearnerConfig)
    sft: SftConfig = section(SftConfig)
    cluster: ClusterConfig = section(ClusterConfig)
    evaluation: EvaluationConfig = section(EvaluationConfig)
    checkpoint: CheckpointConfig = section(CheckpointConfig)
    logging: LoggingConfig = section(LoggingConfig)
    expressions: Mapping[tuple[str, ...], tuple[str, object]] = field(
        default_factory=dict, compare=False, repr=False, metadata={"key": False}
    )
    # No key of the file: path -> (the ``${oc.env:...}`` written there, its value), for copies that must not hold it.
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False, metadata={"key": False})
    # No key either: dotted key -> the file and line that wrote it, for what is found wrong after the file was read.
    checked: str = field(default="", compare=False, repr=False, metadata={"key": False})
    # No key either: the digest of the values that passed the checks; that of changed ones is another.


def keys(section: Any) -> list[Field[Any]]:
    """List the fields of a section, or of its class, that a file can set."""
    return [item for item in fields(section) if item.metadata.get("key", True)]
