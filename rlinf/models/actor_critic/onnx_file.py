"""Actor-critic policies as ONNX files: from observations to the environment's actions, greedy, normalisation inside.

Inputs are the observation's leaves [N, ...] under their names (:mod:`rlinf.data.spaces`), of recurrent policies also
``state`` [N, S] (zeros at the start of an episode). Outputs are ``actions`` [N, *shape], with chunks [N, K, *shape],
and ``next_state``. The only import of onnxruntime.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.base.errors import UserError
from rlinf.base.packages import install_command
from rlinf.data.spaces import Arrays, empty_leaves, write_observation
from rlinf.models.actor_critic.distributions import BetaHead, BoxHead, CategoricalHead, SquashedGaussianHead

_ROWS = 3
"""Of the example that the graph is traced with, and of the comparison."""


class GreedyActor(nn.Module):
    """A policy's most likely action as the environment takes it, in torch operations alone."""

    def __init__(self, policy: Any, action_space: spaces.Space) -> None:
        super().__init__()
        self.policy = policy
        self._space, self._chunk = action_space, int(policy.options.num_action_chunks)
        head = policy.head
        if isinstance(head, BoxHead):
            self.register_buffer("low", torch.from_numpy(head.low.astype(np.float32)))
            self.register_buffer("high", torch.from_numpy(head.high.astype(np.float32)))
        elif isinstance(head, CategoricalHead):
            self.register_buffer("starts", torch.from_numpy(np.asarray(head.starts)))
        else:
            raise UserError(f"a {type(head).__name__} cannot be written as ONNX")

    low: Tensor
    high: Tensor
    starts: Tensor

    def forward(self, leaves: Mapping[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [N, ...] and the next recurrent state [N, S]."""
        own, after = self.policy.step(leaves, state, None)
        lead = (-1,) if self._chunk == 1 else (-1, self._chunk)
        return self._env_actions(own).reshape(*lead, *(self._space.shape or ())), after

    def _env_actions(self, own: Tensor) -> Tensor:
        """`ActionHead.to_env` in ONNX operations."""
        head = self.policy.head
        if isinstance(head, CategoricalHead):
            return own + (self.starts[0] if head.scalar else self.starts)
        if isinstance(head, SquashedGaussianHead):
            return self.low + 0.5 * (torch.tanh(own) + 1.0) * (self.high - self.low)
        if isinstance(head, BetaHead):
            return self.low + own * (self.high - self.low)
        return torch.minimum(torch.maximum(own, self.low), self.high)


def write_onnx(policy: Any, both: tuple[spaces.Space, spaces.Space], path: Path) -> float:
    """Write the file, run it with onnxruntime, and return the largest difference to the policy itself.

    Raises UserError if a package is missing, or an operation of the policy has no counterpart in ONNX.
    """
    _require()
    actor = GreedyActor(policy.eval(), both[1]).eval()
    leaves = _examples(both[0])
    given = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
    state = torch.zeros(_ROWS, policy.state_size)
    names = [*given, "state"] if policy.state_size else list(given)
    outputs = ["actions", "next_state"] if policy.state_size else ["actions"]
    recurrent = bool(policy.state_size)
    tensors = [*given.values(), state] if recurrent else list(given.values())
    rows = torch.export.Dim("rows", min=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                _Graph(actor, tuple(given)),
                (tensors,),
                dynamo=True,
                input_names=names,
                output_names=outputs,
                dynamic_shapes=([{0: rows} for _ in tensors],),
                verbose=False,
            )
            assert program is not None
            program.save(str(path), external_data=False)
    except torch.onnx.OnnxExporterError as error:
        raise UserError(f"this policy cannot be written as ONNX: {str(error).splitlines()[0]}") from error
    result = run_onnx(path, leaves, state.numpy() if recurrent else None)
    with torch.no_grad():
        expected = actor(given, state)[0].numpy()
    return float(np.abs(result[0].astype(np.float64) - expected).max())


def run_onnx(path: Path, leaves: Arrays, state: np.ndarray | None = None) -> list[np.ndarray]:
    """Compute the outputs of a file for observations [N, ...], in their order."""
    onnxruntime = _require()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    requested = {part.name for part in session.get_inputs()}
    fed = {name: leaf for name, leaf in leaves.items() if name in requested}
    return session.run(None, fed if state is None else {**fed, "state": state})


class _Graph(nn.Module):
    """The actor as a function of a list of tensors: the leaves ``names`` in their order, then the recurrent state."""

    def __init__(self, actor: GreedyActor, names: tuple[str, ...]) -> None:
        super().__init__()
        self.actor, self.names = actor, names

    def forward(self, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        leaves = dict(zip(self.names, tensors, strict=False))
        if len(tensors) > len(self.names):
            return self.actor(leaves, tensors[-1])
        nothing = tensors[0].new_zeros((tensors[0].shape[0], 0), dtype=torch.float32)
        return (self.actor(leaves, nothing)[0],)


def _examples(space: spaces.Space) -> Arrays:
    """Draw a few members of the observation space."""
    space.seed(0)
    leaves = empty_leaves(space, (_ROWS,))
    for row in range(_ROWS):
        write_observation(leaves, row, space.sample())
    for leaf in leaves.values():
        if leaf.dtype.kind == "f":
            np.clip(leaf, -math.pi, math.pi, out=leaf)  # unbounded spaces draw any number
    return leaves


def _require() -> Any:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise UserError(f"ONNX files need {error.name}: {install_command('onnx')}") from error
    return onnxruntime
