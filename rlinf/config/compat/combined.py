"""Names of other vocabularies that mean something only together; read after all files and overrides are merged."""

from __future__ import annotations

from rlinf.config.problems import ConfigProblem, problem
from rlinf.config.tree import Branch, Located, drop, get, put
from rlinf.schema import AlgorithmConfig

NAMES = ("use_kl_loss", "kl_loss_coef", "dual_clip_loss", "init_kl_coef", "kl_penalty")
"""Wherever they were written, they are found under ``algorithm:``."""


def combine(tree: Branch, notes: list[str], problems: list[ConfigProblem]) -> None:
    """Replace these names in ``tree`` by the key that they amount to."""
    _kl_loss(tree, notes, problems)
    _dual_clip(tree, notes, problems)
    switch = get(tree, "algorithm.add_token_level_kl")
    for name, key in (("init_kl_coef", "algorithm.kl_coef"), ("kl_penalty", "algorithm.token_kl_type")):
        written = drop(tree, f"algorithm.{name}")
        if written is None:
            continue
        if switch is None or switch.value is not True:
            notes.append(f"{written.origin}: {name} is not read without add_token_level_kl: true.")
            continue
        setting = f"{name}: {written.value}"
        _settle(tree, key, Located(written.value, written.origin), setting, notes, problems)
    sampling = get(tree, "algorithm.sampling_params")
    if sampling is not None:
        _greedy(tree, notes)


def _kl_loss(tree: Branch, notes: list[str], problems: list[ConfigProblem]) -> None:
    switch, weight = drop(tree, "algorithm.use_kl_loss"), drop(tree, "algorithm.kl_loss_coef")
    if switch is None and weight is None:
        return
    if switch is not None and not isinstance(switch.value, bool):
        _not_a_switch(switch, "use_kl_loss", problems)
        return
    if switch is not None and switch.value and weight is None:
        message = "use_kl_loss: true needs the weight of the KL term."
        problems.append(problem(switch.origin, "algorithm.kl_beta", message, "Add kl_loss_coef: 0.001."))
        return
    if switch is None or weight is None or not switch.value:
        shown = switch or weight
        assert shown is not None
        if weight is not None and switch is None:
            notes.append(f"{weight.origin}: kl_loss_coef is not read without use_kl_loss: true.")
            return
        _settle(tree, "algorithm.kl_beta", Located(0.0, shown.origin), "use_kl_loss: false", notes, problems)
        return
    setting = f"use_kl_loss with kl_loss_coef: {weight.value}"
    _settle(tree, "algorithm.kl_beta", Located(weight.value, weight.origin), setting, notes, problems)


def _dual_clip(tree: Branch, notes: list[str], problems: list[ConfigProblem]) -> None:
    switch = drop(tree, "algorithm.dual_clip_loss")
    if switch is None:
        return
    if not isinstance(switch.value, bool):
        _not_a_switch(switch, "dual_clip_loss", problems)
        return
    bound: object = None
    if switch.value:
        written = get(tree, "algorithm.ratio_clip_eps")
        epsilon = AlgorithmConfig().ratio_clip_eps if written is None else written.value
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
            return  # Its own line is reported: this is no number.
        bound = 1 + 2 * epsilon
    setting = f"dual_clip_loss: {str(switch.value).lower()}"
    _settle(tree, "algorithm.clip_ratio_c", Located(bound, switch.origin), setting, notes, problems)


def _greedy(tree: Branch, notes: list[str]) -> None:
    """Replace ``do_sample: false`` by a temperature of 0; true means nothing that the temperature does not."""
    switch = drop(tree, "algorithm.sampling_params.do_sample")
    if switch is not None and switch.value is False:
        put(tree, "rollout.temperature", Located(0.0, switch.origin))
        notes.append(f"{switch.origin}: sampling_params.do_sample: false is read as rollout.temperature: 0.")
    left = get(tree, "algorithm.sampling_params")
    if left is not None and not left.value:
        drop(tree, "algorithm.sampling_params")


def _settle(
    tree: Branch, key: str, value: Located, setting: str, notes: list[str], problems: list[ConfigProblem]
) -> None:
    """Write ``key``, unless it was written too: then the higher layer counts, and within one layer they must agree."""
    existing = get(tree, key)
    if existing is not None and existing.value != value.value and existing.origin.layer >= value.origin.layer:
        if existing.origin.layer == value.origin.layer:
            message = f"{setting} means {key}: {value.value}, but {existing.origin} has {existing.value}."
            problems.append(problem(value.origin, key, message, f"Keep {key}."))
        return
    put(tree, key, value)
    notes.append(f"{value.origin}: {setting} is read as {key}: {'null' if value.value is None else value.value}.")


def _not_a_switch(switch: Located, name: str, problems: list[ConfigProblem]) -> None:
    message = f"{name} must be true or false, not {switch.plain()}."
    problems.append(problem(switch.origin, f"algorithm.{name}", message, "Write true or false, without quotes."))
