"""Holds parts of a user's own against their contract, on two drawn observations, when they are made.

A part that breaks it would end training in its first step, with words of torch about shapes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.base.user_code import kind_of
from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.own import OwnClassError

_ROWS = 2
_ENCODER, _HEAD = "policy.encoder", "policy.distribution"


@torch.no_grad()
def require_encoder(name: str, encoder: Any, space: spaces.Space) -> None:
    """Raise OwnClassError if an encoder has no ``out_features``, or does not map leaves to [N, out_features]."""
    width = getattr(encoder, "out_features", None)
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        got = "has none" if width is None else f"has {width!r}"
        raise OwnClassError(
            f"{_ENCODER}: {name} must have out_features, the whole number of features that its forward gives, and it "
            f"{got}. Set self.out_features in __init__."
        )
    leaves = _observations(space)
    shapes = {leaf: list(value.shape) for leaf, value in leaves.items()}
    contract = f"forward is called with a mapping of leaves, here {shapes}, and must return [{_ROWS}, {width}]"
    result = _called(_ENCODER, name, encoder, lambda: encoder(leaves), contract)
    _require_shape(_ENCODER, name, result, (_ROWS, width), contract)


@torch.no_grad()
def require_head(name: str, head: Any, features: int, space: spaces.Space) -> None:
    """Raise OwnClassError if a distribution's methods do not fit each other or the action space."""
    numbers = getattr(head, "noise_size", None)
    if not isinstance(numbers, int) or getattr(head, "noise_kind", None) not in ("uniform", "normal"):
        raise OwnClassError(f"{_HEAD}: {name} must have noise_size (a whole number) and noise_kind (uniform or normal)")
    noise = torch.full((_ROWS, numbers), 0.5)
    given = torch.zeros(_ROWS, features)
    steps: Mapping[str, Callable[[], Any]] = {
        f"forward(features [{_ROWS}, {features}])": lambda: head(given),
        f"sample(parameters, noise [{_ROWS}, {numbers}])": lambda: head.sample(head(given), noise),
        "mode(parameters)": lambda: head.mode(head(given)),
        "log_prob(parameters, actions)": lambda: head.log_prob(head(given), head.sample(head(given), noise)),
        "entropy(parameters)": lambda: head.entropy(head(given)),
        "to_env(actions)": lambda: head.to_env(head.sample(head(given), noise).numpy()),
    }
    results = {called: _called(_HEAD, name, head, call, called) for called, call in steps.items()}
    own = (_ROWS, *head.action_shape)
    for called, value in results.items():
        if called.startswith(("sample", "mode")):
            _require_shape(_HEAD, name, value, own, f"{called} must return actions {list(own)}")
        if called.startswith(("log_prob", "entropy")) and np.ndim(value) != 2:
            wrong = f"{called} must return a tensor of two dimensions, a number for each number of an action"
            raise OwnClassError(f"{_HEAD}: {name}: {wrong}, and returned {_shape(value)}")
    requested = (_ROWS, *(space.shape or ()))
    if np.shape(results["to_env(actions)"]) != requested:
        got = _shape(results["to_env(actions)"])
        raise OwnClassError(f"{_HEAD}: {name}: to_env must return {list(requested)}, and returned {got}")


@torch.no_grad()
def require_policy(key: str, name: str, policy: Any, space: spaces.Space) -> None:
    """Raise OwnClassError if a policy's step does not decide on two observations as the contract states."""
    leaves, state = _observations(space), torch.zeros(_ROWS, policy.state_size)
    contract = "step(observations, state, noise) must return (actions [N, ...], state [N, state_size])"
    result = _called(key, name, policy, lambda: policy.step(leaves, state, None), contract)
    if not isinstance(result, tuple) or len(result) != 2:
        raise OwnClassError(f"{key}: {name}: {contract}, and returned {kind_of(result)}")
    actions, after = result
    _require_shape(key, name, actions, (_ROWS, *policy.action_shape), f"{contract} with its action_shape")
    _require_shape(key, name, after, tuple(state.shape), contract)
    _called(key, name, policy, lambda: policy.env_actions(actions.numpy()), "env_actions(actions [N, ...])")


def _observations(space: spaces.Space) -> dict[str, Tensor]:
    """Two draws of the space by leaf; a copy of it draws them, so that no stream of the run moves."""
    drawn, leaves = copy.deepcopy(space), empty_leaves(space, (_ROWS,))
    drawn.seed(0)
    for row in range(_ROWS):
        write_observation(leaves, row, drawn.sample())
    return {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}


def _called(key: str, name: str, part: Any, call: Callable[[], Any], contract: str) -> Any:
    """Return the result of a call in evaluation mode; what is raised there is reported with the contract."""
    training = part.training if isinstance(part, nn.Module) else False
    try:
        if training:
            part.eval()
        with torch.random.fork_rng(devices=[]):
            return call()
    except (Exception, SystemExit) as error:  # a user's own code raises what it likes
        raise OwnClassError(f"{key}: {name} raised {type(error).__name__}: {error}. Contract: {contract}") from error
    finally:
        if training:
            part.train()


def _require_shape(key: str, name: str, result: Any, shape: tuple[int, ...], contract: str) -> None:
    if not isinstance(result, Tensor) or tuple(result.shape) != shape:
        raise OwnClassError(f"{key}: {name}: {contract}, and it returned {_shape(result)}")


def _shape(result: Any) -> str:
    return str(list(np.shape(result))) if isinstance(result, Tensor | np.ndarray) else kind_of(result)
