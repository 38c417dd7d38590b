"""The reward terms by the names that a configuration gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rlinf_envs.reward_terms.choice import choice
from rlinf_envs.reward_terms.classifier import reward_model
from rlinf_envs.reward_terms.code_tests import code_tests
from rlinf_envs.reward_terms.constraints import constraints
from rlinf_envs.reward_terms.exact import exact
from rlinf_envs.reward_terms.http import http
from rlinf_envs.reward_terms.judge import judge
from rlinf_envs.reward_terms.wording import format_term, language_term, length_term

if TYPE_CHECKING:
    from rlinf.interfaces import RewardTerm

BUILDERS: Mapping[str, Callable[..., RewardTerm]] = {
    "format": format_term,
    "length": length_term,
    "language": language_term,
    "exact": exact,
    "choice": choice,
    "constraints": constraints,
    "code_tests": code_tests,
    "http": http,
    "judge": judge,
    "reward_model": reward_model,
}
"""Name -> function whose keyword arguments are the term's options."""

SERVICES = frozenset({"http", "judge"})
"""Terms that may fail through no fault of the response: they have retries, and `on_failure`."""
SLOW = frozenset({"http", "judge", "code_tests"})
"""Terms that wait rather than compute here: responses are scored side by side."""
