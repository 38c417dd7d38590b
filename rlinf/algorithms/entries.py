"""The rows of the catalog: a function by name, what it reads, and its traits. Imports no torch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from rlinf.base.user_code import Signature, imported, own_parameters

if TYPE_CHECKING:
    from rlinf.schema.algorithm import AlgorithmConfig

SCHEDULED: Mapping[str, tuple[str, ...]] = {
    "clip_schedule": ("ratio_clip_eps", "clip_ratio_low", "clip_ratio_high"),
    "value_clip_schedule": ("value_clip",),
}
"""Schedules of a loss -> its options that fall to 0 by them."""
AFTER_NORM_OPTIONS = ("clip_after_norm", "kl_after_norm")
"""Read where an estimator gives one normalised number for a row."""
OWN_ARGUMENTS: Mapping[str, str] = {
    "adv_type": "AdvantageInputs",
    "loss_type": "LossInputs",
    "loss_agg_func": "BatchShape",
    "kl_penalty_type": "a tensor d = logprobs - ref_logprobs",
    "token_kl_type": "a tensor d = logprobs - ref_logprobs",
}
"""The keys that take ``module:name`` of a function -> its one argument, by its class where it has one of its own."""


_COLUMNS = ("values", "step_rewards", "greedy_rewards", "reward_terms", "reward_weights", "anchor_ids")
"""Of `AdvantageInputs`, those that are there only for estimators which need them."""


@dataclass(frozen=True)
class OptionGroup:
    """Options that a function takes as one argument."""

    argument: str
    make: str
    """``module:name`` of what makes the argument of the options, given by name."""
    options: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One row of a table."""

    function: str
    """``module:name``."""
    line: str
    formula: str
    source: str
    options: tuple[str | OptionGroup, ...] = ()
    """The config names that the function takes, in addition to those that all entries of its table read."""
    needs: tuple[str, ...] = ()
    """Required columns, in addition to those that all entries of its table read."""

    @classmethod
    def of_function(cls, name: str, function: Callable[..., Any]) -> Self:
        """Return the entry of a user's own function, which takes no options."""
        return cls(name, _first_line(function, name), "", name)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters of the function that are given by name."""
        return tuple(option if isinstance(option, str) else option.argument for option in self.options)

    @property
    def reads(self) -> tuple[str, ...]:
        """The config names that are read because this entry was chosen."""
        return _flat(self.options)

    def bind(self, algorithm: AlgorithmConfig) -> Callable[..., Any]:
        """Bind the function to its options from the configuration."""
        return _bind(self.function, self.options, algorithm)


@dataclass(frozen=True)
class Estimator(Entry):
    """``estimator(inputs: AdvantageInputs, **options) -> Advantages``."""

    whitens: bool = False
    """Whitened over the batch, whatever ``normalize_advantages``: it is part of the rule."""
    token_kl: bool = False
    """Each token pays ``kl_coef`` times its KL, whatever ``add_token_level_kl``: it is part of the rule."""
    normalises_rows: bool = False
    """Gives one number for a row, its normalised outcome: clip and token KL may come before it or after."""
    of_outcomes: bool = False
    """Gives one number for a row, made of the rows' outcomes and lengths alone: no tokens are read."""
    of_turns: bool = False
    """Gives one number for a turn, made of what turns and rows earn: all tokens of a turn are alike to it."""
    by_row: bool = False
    """Reads the tokens of a row and no others, so that each rank of a learner can do it for its own rows."""
    compares: Literal["", "outcomes", "steps"] = ""
    """Reads the tokens of a row, and of the other rows of its group the mean and deviation of their outcomes, or of the
    rewards of all their steps (`AdvantageInputs.compared`): ranks do it for their own rows by these numbers."""

    @classmethod
    def of_function(cls, name: str, function: Callable[..., Any]) -> Self:
        """Its options are its parameters behind the first, the columns it needs an attribute ``needs`` of it.

        ``function.needs = ("values",)`` is that of an estimator with a critic; a simulator's rows are fragments then.
        Raises ValueError for columns that no batch has.
        """
        needs = tuple(getattr(function, "needs", ()))
        if unknown := [column for column in needs if column not in _COLUMNS]:
            raise ValueError(
                f"{name} needs {', '.join(map(str, unknown))}: its attribute needs names {', '.join(_COLUMNS)}"
            )
        return cls(name, _first_line(function, name), "", name, keyword_options(function), needs)

    @property
    def reads(self) -> tuple[str, ...]:
        return (*super().reads, *(AFTER_NORM_OPTIONS if self.normalises_rows else ()))

    @property
    def compares_groups(self) -> bool:
        """Whether a row alone in its group has nothing to be compared with."""
        return "singleton_group" in self.reads

    def penalises_tokens(self, algorithm: AlgorithmConfig) -> bool:
        """Whether each token pays for its KL from the reference, by the configuration or by the rule."""
        return algorithm.add_token_level_kl or self.token_kl


@dataclass(frozen=True)
class Loss(Entry):
    """``loss(inputs: LossInputs, **options) -> TokenLoss``."""

    sequence_level: bool = False
    """Reads a ratio or a mean over the whole row, so rows may not be cut into single timesteps."""
    zero_without_advantage: bool = True
    """A multiple of the advantage: where that is 0 in the whole row, loss and gradient are 0."""
    selector: str = ""
    """``module:name`` of what chooses, once for a step, the tokens that the loss treats separately:
    ``select(old_logprobs, advantages, mask, **options) -> bool [B, T]``."""
    selector_options: tuple[str | OptionGroup, ...] = ()

    @classmethod
    def of_function(cls, name: str, function: Callable[..., Any]) -> Self:
        """Nothing is known of its traits, so rows are left whole and none is left out."""
        line, options = _first_line(function, name), keyword_options(function)
        return cls(name, line, "", name, options, sequence_level=True, zero_without_advantage=False)

    @property
    def reads(self) -> tuple[str, ...]:
        own = (*super().reads, *_flat(self.selector_options))
        return (*own, *(name for name, options in SCHEDULED.items() if not set(options).isdisjoint(own)))

    def bind_selector(self, algorithm: AlgorithmConfig) -> Callable[..., Any] | None:
        """Bind the selector to its options; None for most losses."""
        return _bind(self.selector, self.selector_options, algorithm) if self.selector else None


@dataclass(frozen=True)
class OffPolicy(Entry):
    """An algorithm that learns from a replay buffer; ``function`` is the class of its objective.

    ``Class(policy, algorithm, optimizer, placement)`` is a `learners.off_policy.objective.OffPolicyObjective`.
    """

    policy: str = ""
    """``module:Class`` of the networks, an `models.off_policy.networks.OffPolicyNetworks`."""
    discrete: bool = False
    """For actions of a Discrete space; else for those of a Box."""
    one_network: bool = False
    """One network is trained, and reads `learner.optimizer.grad_clip`; others have an actor and critics, and read
    `critic_lr`."""
    offline: bool = False
    """Learns from `algorithm.prior_data` alone, without environment steps."""
    one_rank: str = ""
    """Why an update cannot be shared among ranks; empty where it can."""
    policy_options: tuple[str, ...] = ()
    """Keys of the policy section that only some of these read."""
    recurrent_policy: str = ""
    """Networks with a memory (`policy.recurrent`); empty where there are none."""
    recurrent_function: str = ""
    """The class of their objective."""


E = TypeVar("E", bound=Entry)


def external(name: str, kind: type[E], key: str) -> E:
    """Return the entry of ``module:name``; raise ValueError if it is none, or cannot be called so.

    It is an entry of this ``kind`` itself, or a function that takes the argument of ``key`` and its options.
    """
    result = imported(name)
    if isinstance(result, Entry) and not isinstance(result, kind):
        raise ValueError(f"{name} is a catalog entry of the kind {type(result).__name__}, not {kind.__name__}")
    entry = result if isinstance(result, kind) else kind.of_function(name, result)
    misfit = own_misfit(entry, key, entry.arguments)
    if misfit:
        raise ValueError(f"{name} {misfit}")
    return entry


def own_misfit(entry: Entry, key: str, options: Collection[str]) -> str:
    """Return why the function of ``entry`` cannot be called as ``key`` has it, with ``options`` by name; else "".

    The end of a sentence that begins with its name.
    """
    function, argument = imported(entry.function), OWN_ARGUMENTS[key]
    return Signature((argument,)).misfit(function, options) or _made_for_another(function, argument)


def _made_for_another(function: Callable[..., Any], given: str) -> str:
    """Name the key whose function it is, if the annotation of its first parameter is the argument of another key."""
    annotated = (kind for name, kind in getattr(function, "__annotations__", {}).items() if name != "return")
    kind = next(annotated, None)
    first = str(getattr(kind, "__name__", kind)).rpartition(".")[2]
    other = next((key for key, argument in OWN_ARGUMENTS.items() if argument == first != given), None)
    return f"takes {first}, and is called with {given}: it may be meant for {other}" if other is not None else ""


def keyword_options(function: object, *, behind: int = 1) -> tuple[str, ...]:
    """Return the names of the options of ``function``, whose arguments before them are ``behind`` positional ones."""
    return tuple(parameter.name for parameter in own_parameters(function, behind=behind))


def _first_line(function: Callable[..., Any], name: str) -> str:
    return (inspect.getdoc(function) or name).splitlines()[0]


def _flat(options: Iterable[str | OptionGroup]) -> tuple[str, ...]:
    return tuple(name for option in options for name in ((option,) if isinstance(option, str) else option.options))


def _bind(function: str, options: Iterable[str | OptionGroup], algorithm: AlgorithmConfig) -> Callable[..., Any]:
    arguments: dict[str, Any] = {}
    for option in options:
        if isinstance(option, OptionGroup):
            arguments[option.argument] = imported(option.make)(**_values(option.options, algorithm))
        else:
            arguments |= _values((option,), algorithm)
    return functools.partial(imported(function), **arguments)


def _values(names: Iterable[str], algorithm: AlgorithmConfig) -> dict[str, Any]:
    """Return the options by name: keys of ``algorithm``, or of its ``options`` if they were given."""
    own = algorithm.options
    return {
        name: getattr(algorithm, name) if hasattr(algorithm, name) else own[name]
        for name in names
        if hasattr(algorithm, name) or name in own
    }
