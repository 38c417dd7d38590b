"""The algorithm section as the options of the algorithm layer, under the names that its functions know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlinf.config.schema import AlgorithmConfig

OPTION_NAMES: Mapping[str, tuple[str, ...]] = {
    "step_weight": ("step_advantage_weight",),
    "sapo_tau_positive": ("tau_pos",),
    "sapo_tau_negative": ("tau_neg",),
    "cov_ratio": ("clip_cov_ratio", "kl_cov_ratio"),
    "cov_kl_coef": ("kl_cov_coef",),
    "cov_lower_bound": ("clip_cov_lb",),
    "cov_upper_bound": ("clip_cov_ub",),
}
"""Keys of the schema that the functions call otherwise; all others have one name."""

_KEYS = {option: key for key, options in OPTION_NAMES.items() for option in options}


def key_of(option: str) -> str:
    """The key under ``algorithm:`` that sets an option.

    >>> key_of("tau_pos"), key_of("gamma")
    ('sapo_tau_positive', 'gamma')
    """
    return _KEYS.get(option, option)


def algorithm_options(algorithm: AlgorithmConfig, names: Iterable[str]) -> dict[str, object]:
    """The values of these options, ready to be handed to the functions that read them.

    >>> algorithm_options(AlgorithmConfig(), ["gamma", "tau_neg"])
    {'gamma': 1.0, 'tau_neg': 1.05}
    """
    return {name: getattr(algorithm, key_of(name)) for name in names}
