"""Reward terms, composed by configuration.

    reward: {correctness: 1.0, format: 0.1, length: {weight: 0.2, target: 800, slack: 400},
             language: {weight: 0.1, expected: en}, code_tests: 1.0, custom: {"mypackage.rewards:brevity": 0.5},
             "judge:helpful": {weight: 0.5, base_url: http://localhost:8000/v1, model: m, rubric: "..."}}

Every term gives one number per response; the reward is their weighted sum. A word behind a colon
distinguishes several terms of a kind. A reward that is not finite never leaves here: the row gets 0 and is
reported as quarantined. A service that fails, after as many retries as it has, costs the row alone: it is
masked, or gets 0.
"""

from __future__ import annotations

import inspect
import math
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlinf.base import timeline
from rlinf_envs.custom_rewards import DEFAULT_MEMORY_MB, DEFAULT_TIMEOUT_S, CustomReward
from rlinf_envs.errors import RewardError, SettingError
from rlinf_envs.reward_terms.answering import Answering, RowReading
from rlinf_envs.reward_terms.failure import TermFailure
from rlinf_envs.reward_terms.table import BUILDERS, SERVICES, SLOW
from rlinf_envs.suggest import reject_unknown
from rlinf_envs.tasks import Judgement, Task
from rlinf_envs.typed import misfits

if TYPE_CHECKING:  # the protocol is in a module that imports torch, which an env worker must not load
    from rlinf.interfaces import RewardTerm

TERMS = ("correctness", "custom", *BUILDERS)
_CONDITIONS: Mapping[str, Callable[[Judgement], bool]] = {
    "answered": lambda judgement: judgement.status in ("correct", "wrong"),
    "correct": lambda judgement: judgement.status == "correct",
}
"""What `only_if` demands of a response whose reward is above 0."""
_ATTEMPTS: Mapping[str, Any] = {"retries": 2, "on_failure": "mask", "concurrency": 16}
"""Options of every term in :data:`SERVICES`."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 8.0


@dataclass(frozen=True)
class Rewards:
    """The result of :meth:`RewardSum.score` for n responses."""

    total: NDArray[np.float32]
    """[n], finite; 0 where quarantined."""
    terms: dict[str, NDArray[np.float32]]
    """Each term's own value [n], before its weight."""
    weights: dict[str, float]
    """Each term's weight in the sum."""
    quarantined: NDArray[np.bool_]
    """[n], true where some term gave NaN or an infinity."""
    masked: NDArray[np.bool_]
    """[n], true where some term failed whose ``on_failure`` is mask: nothing is known of what the row is worth."""
    failed: dict[str, NDArray[np.bool_]]
    """Where each term of a service failed [n], whatever became of the row."""


class RewardSum:
    """The weighted sum of the configured terms."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        default_format: str = "boxed",
        custom_timeout_s: float = DEFAULT_TIMEOUT_S,
        custom_memory_mb: int = DEFAULT_MEMORY_MB,
    ) -> None:
        """
        Args:
            config: term name -> weight, or a mapping with ``weight`` and the term's options; ``custom`` maps
                "module:function" to weights. Nothing given means ``{"correctness": 1.0}``. ``only_if`` is no term: a
                response without a final answer (``answered``), or without the right one (``correct``), earns nothing.
            default_format: the format that the ``format`` term requires when it names none.
            custom_timeout_s: deadline of one call of a custom function, seconds.
            custom_memory_mb: what its process and all that it starts may take, MiB; 0 means no limit.

        Raises:
            SettingError: an unknown term or option, a weight that is no finite number, a custom function that is not
                there.
        """
        settings = {"correctness": 1.0} if config is None else dict(_mapping("reward", config))
        self.only_if = settings.pop("only_if", None)
        if self.only_if not in (None, *_CONDITIONS):
            raise SettingError(f"reward.only_if must be one of {', '.join(_CONDITIONS)}, got {self.only_if!r}")
        reject_unknown("reward term", [name.partition(":")[0] for name in settings], TERMS)
        self.weights: dict[str, float] = {}
        self._functions: dict[str, _Term] = {}
        for name, value in settings.items():
            kind = name.partition(":")[0]
            if kind == "custom":
                for path, weight in _mapping("reward.custom", value).items():
                    custom = CustomReward(path, timeout_s=custom_timeout_s, memory_mb=custom_memory_mb)
                    self._add(f"custom:{path}", weight, _Term(f"custom:{path}", custom))
            elif kind == "correctness":
                self._add(name, _options(name, value, ())["weight"], None)
            else:
                defaults = {"pattern": default_format} if kind == "format" else {}
                self._add_built(
                    name, kind, {**defaults, **(value if isinstance(value, Mapping) else {"weight": value})}
                )

    @property
    def waits(self) -> bool:
        """Whether a term takes so long that responses should be scored side by side."""
        return any(term.slow for term in self._functions.values())

    def answers(self, name: str, responses: Sequence[str]) -> list[str | None] | None:
        """Return the answers that the term ``name`` compares, None each if there is none; None if it compares none."""
        function = self._functions[name].function if name in self._functions else None
        return [function.answer_in(response) for response in responses] if isinstance(function, Answering) else None

    def check_row(self, row: Mapping[str, Any]) -> None:
        """Raise a SettingError if a term cannot read the instructions in ``row``."""
        for term in self._functions.values():
            if isinstance(term.function, RowReading):
                term.function.check(row)

    def doubts(self, prompt: str, task: Task) -> dict[str, str]:
        """Remarks on custom functions that would hardly expect calls about ``task``: label -> a sentence."""
        custom = {name: term.function for name, term in self._functions.items()}
        doubts = {name: one.doubt(prompt, task) for name, one in custom.items() if isinstance(one, CustomReward)}
        return {f"reward.{name}": doubt for name, doubt in doubts.items() if doubt}

    def pays(self, kind: str) -> bool:
        """Whether a term of this kind counts."""
        return any(weight != 0 and name.partition(":")[0] == kind for name, weight in self.weights.items())

    def _add_built(self, name: str, kind: str, value: Mapping[str, Any]) -> None:
        build = BUILDERS[kind]
        parameters = inspect.signature(build).parameters
        attempts = dict(_ATTEMPTS) if kind in SERVICES else {}
        options = _options(name, value, (*parameters, *attempts))
        weight = options.pop("weight")
        attempts.update({option: options.pop(option) for option in attempts if option in options})
        for option, parameter in parameters.items():
            if parameter.default is inspect.Parameter.empty and option not in options:
                raise SettingError(f"reward.{name}.{option} is missing")
        wrong = misfits(build, options, f"reward.{name}.")
        if wrong:
            raise SettingError("; ".join(wrong))
        try:
            function = build(**options)
        except (TypeError, AttributeError) as error:  # an option of a type that the term can do nothing with
            raise SettingError(f"reward.{name}: {error}") from error
        self._add(name, weight, _Term(name, function, slow=kind in SLOW, **attempts))

    def _add(self, name: str, weight: Any, term: _Term | None) -> None:
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise SettingError(f"reward.{name}: the weight must be a finite number, got {weight!r}")
        self.weights[name] = float(weight)
        if term is not None:
            self._functions[name] = term

    def score(
        self, prompts: Sequence[str], responses: Sequence[str], tasks: Sequence[Task], judgements: Sequence[Judgement]
    ) -> Rewards:
        """Rewards of n responses; all four sequences have length n. Safe from any thread.

        Raises:
            RewardError: a custom function raised, or returned something that is no number.
        """
        count = len(responses)
        total = np.zeros(count, dtype=np.float64)
        masked = np.zeros(count, dtype=np.bool_)
        columns: dict[str, NDArray[np.float32]] = {}
        failed: dict[str, NDArray[np.bool_]] = {}
        for name, weight in self.weights.items():
            if name in self._functions:
                term = self._functions[name]
                values = term.all(list(zip(prompts, responses, tasks, strict=True)))
                if term.is_service:
                    failed[name] = np.array([value is None for value in values], dtype=np.bool_)
                    masked |= failed[name] & term.masks
                column = np.array([0.0 if value is None else value for value in values], dtype=np.float64)
            else:
                column = np.array([judgement.score for judgement in judgements], dtype=np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                columns[name] = column.astype(np.float32)
                total += weight * column
        if self.only_if is not None:
            condition = _CONDITIONS[str(self.only_if)]
            kept = np.array([condition(judgement) for judgement in judgements], dtype=np.bool_)
            total = np.where(kept | ~(total > 0), total, 0.0)
        with np.errstate(over="ignore"):
            rounded = total.astype(np.float32)
        quarantined = ~np.isfinite(rounded)
        return Rewards(
            np.where(quarantined, np.float32(0.0), rounded), columns, self.weights, quarantined, masked, failed
        )


class _Term:
    """One term: called for each response, again if a service fails, and in parallel if it is slow."""

    def __init__(
        self,
        name: str,
        function: RewardTerm,
        *,
        slow: bool = False,
        retries: int | None = None,
        on_failure: str = "",
        concurrency: int = 8,
    ) -> None:
        """``retries``: None if the term is no service."""
        if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 0):
            raise SettingError(f"reward.{name}.retries must be a number from 0 on, got {retries!r}")
        if retries is not None and str(on_failure) not in ("mask", "0"):
            raise SettingError(f"reward.{name}.on_failure must be mask or 0, got {on_failure!r}")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise SettingError(f"reward.{name}.concurrency must be a number from 1 on, got {concurrency!r}")
        self.name, self.slow, self.is_service, self.masks = name, slow, retries is not None, str(on_failure) == "mask"
        self.function, self._retries, self._concurrency = function, retries or 0, concurrency
        self._gate = threading.BoundedSemaphore(concurrency)

    def all(self, calls: Sequence[tuple[str, str, Task]]) -> list[float | None]:
        """Compute a value for each call; None if the service failed."""
        if not self.slow or len(calls) < 2:
            return [self._attempts(*call) for call in calls]
        with ThreadPoolExecutor(min(self._concurrency, len(calls)), thread_name_prefix=self.name) as threads:
            return list(threads.map(lambda call: self._attempts(*call), calls))

    def _attempts(self, prompt: str, response: str, task: Task) -> float | None:
        for attempt in range(self._retries + 1):
            try:
                with self._gate, timeline.span(f"reward {self.name}"):
                    return float(self.function(prompt=prompt, response=response, answer=task.answer, row=task.row))
            except TermFailure as failure:
                if attempt == self._retries:
                    _warn(self.name, failure)
                    return None
            except RewardError as error:
                words = f"reward term {self.name!r} {error} (question: {task.question[:80]!r})"
                raise RewardError(words) from None
            time.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt))
        return None


def _warn(name: str, failure: TermFailure) -> None:
    warnings.warn(f"reward.{name}: {failure}", RuntimeWarning, stacklevel=2)


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{where} must be a mapping of names to weights, got {value!r}")
    return value


def _options(name: str, value: Any, known: Sequence[str]) -> dict[str, Any]:
    """Read a term's settings: a bare number is its weight."""
    options = dict(value) if isinstance(value, Mapping) else {"weight": value}
    reject_unknown(f"option of reward.{name}", options, ["weight", *known])
    if "weight" not in options:
        raise SettingError(f"reward.{name} needs a weight")
    return options
