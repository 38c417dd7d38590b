"""The presets of ``algorithm.rollout_correction``: the names that papers and other frameworks give to its forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Correction:
    """A preset: one line, its source, and the values of the keys of the section."""

    line: str
    source: str
    values: Mapping[str, object]


_LIU = "Liu et al. 2025, When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch"
_YAO = "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"

CORRECTIONS: dict[str, Correction] = {
    "tis": Correction(
        "truncated weight of each token",
        _YAO,
        {"level": "token", "mode": "truncate", "cap": 2.0},
    ),
    "seq_tis": Correction(
        "truncated weight of the whole response",
        _LIU,
        {"level": "sequence", "mode": "truncate", "cap": 2.0},
    ),
    "mis": Correction(
        "the weight of the whole response, which is left out above the cap",
        _LIU,
        {"level": "sequence", "mode": "mask", "cap": 2.0},
    ),
    "icepop": Correction(
        "tokens outside of both bounds are left out: for mixtures of experts",
        "Ling team 2025, arXiv:2510.18855; Small Leak Can Sink a Great Ship: Boost RL Training on MoE with IcePop",
        {"level": "token", "mode": "mask", "cap": 5.0, "floor": 0.5},
    ),
    "geo_mis": Correction(
        "responses whose geometric mean of weights is outside of both bounds are left out, and tokens are truncated",
        _LIU,
        {"level": "token", "mode": "truncate", "cap": 2.0, "reject_above": 0.001, "reject_by": "k1"},
    ),
}
