"""Processing of pictures, states, words and actions around a published network, as in its original code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rlinf.data.spaces import SpaceError
from rlinf.models.vla.instructions import instruction_texts, padded, require_instruction
from rlinf.models.vla.published.checkpoint import KINDS

Alignment = Literal["corner", "centre"]
_JOINTS, _GRIPPERS = (1, 2, 8, 9), (6, 13)
_GRIPPER_TURN, _GRIPPER_WAY = (0.4, 1.5), (0.01844, 0.05800)
_GRIPPER_JOINT = (-0.6213, 1.4910)
_ARM, _HORN = 0.036, 0.022
STATE_BINS = 256


class Scaling:
    """Numbers of a data set's units to those of the network, by statistics; float32 as in the original."""

    def __init__(self, leaf: str, mode: str, statistics: Mapping[str, Any], eps: float) -> None:
        """Raise SpaceError if the statistics lack what ``mode`` needs; without any of ``leaf`` nothing is scaled."""
        self.mode, self._eps = mode, eps
        there = {name.rsplit(".", 1)[1] for name in statistics if name.rsplit(".", 1)[0] == leaf}
        self.identity = mode == "IDENTITY" or not there
        if self.identity:
            return
        kinds = KINDS[mode]
        missing = [kind for kind in kinds if kind not in there]
        if missing:
            raise SpaceError(f"the checkpoint scales {leaf} by {mode} and has no {', '.join(missing)} of it")
        self._first, self._last = (np.array(statistics[f"{leaf}.{kind}"], dtype=np.float32) for kind in kinds)

    def scaled(self, numbers: Tensor) -> Tensor:
        """Scale [..., n] as the network takes them."""
        if self.identity:
            return numbers
        first, last = (torch.from_numpy(part).to(numbers.device) for part in (self._first, self._last))
        if self.mode == "MEAN_STD":
            return (numbers - first) / (last + self._eps)
        width = torch.where(last == first, torch.full_like(last, self._eps), last - first)
        return 2.0 * (numbers - first) / width - 1.0

    def whole(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Undo it, for numbers [..., n] of the network."""
        given = numbers.astype(np.float64)
        if self.identity:
            return given
        if self.mode == "MEAN_STD":
            return given * self._last + self._first
        width = np.where(self._last == self._first, self._eps, self._last - self._first)
        return (given + 1.0) * width / 2.0 + self._first


class ActionScaling(Protocol):
    """Numbers of actions in a data set's units to those of a network, and back."""

    def scaled(self, numbers: Tensor) -> Tensor:
        """Scale [..., n] as the network takes them."""

    def whole(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Undo it, for numbers [..., n] of the network."""


class ActionUnits:
    """Actions of the network [N, K, A] to those of the environment, and back (as `flow.Bounds`)."""

    def __init__(self, space: Any, scaling: ActionScaling, *, chunk: int, aloha: bool, flip: Sequence[int]) -> None:
        """``flip``: numbers whose sign is the other one in this environment, such as a gripper's."""
        self._space, self._scaling, self._chunk, self._aloha = space, scaling, chunk, aloha
        self.per_action = int(np.prod(space.shape))
        self._sign = np.ones(self.per_action)
        self._sign[list(flip)] = -1.0

    def to_env(self, numbers: NDArray[Any], reference: NDArray[Any] | float = 0.0) -> NDArray[Any]:
        """Return actions [N, *shape], with chunks [N, K, *shape], within the space's bounds.

        ``reference`` [N, 1, A]: what they are relative to.
        """
        own = numbers.astype(np.float64)
        if self._aloha:
            own = _aloha_joints(own, back=False)
        whole = (self._scaling.whole(own) + reference) * self._sign
        low, high = (bound.reshape(-1) for bound in (self._space.low, self._space.high))
        lead = (len(whole),) if self._chunk == 1 else (len(whole), self._chunk)
        return np.clip(whole, low, high).reshape(*lead, *self._space.shape).astype(self._space.dtype)

    def from_env(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Return the network's numbers [N, K, A] of actions [N, *shape] or [N, K, *shape]."""
        own = self._scaling.scaled(torch.from_numpy(self.signed(actions))).numpy()
        return (_aloha_joints(own, back=True) if self._aloha else own).astype(np.float32)

    def signed(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        """Return actions [N, *shape] or [N, K, *shape] in the data set's units, [N, K, A]."""
        parts = np.asarray(actions, dtype=np.float32).reshape(len(actions), self._chunk, self.per_action)
        return (parts * self._sign).astype(np.float32)


def resized(pixels: Tensor, size: tuple[int, int], alignment: Alignment) -> Tensor:
    """Fit pictures [N, 3, h, w] in [0, 1] into ``size`` (rows, columns) without distortion; the rest is black.

    ``corner``: the picture lies right and below (SmolVLA), ``centre``: in the middle (pi0).
    """
    height, width = pixels.shape[-2:]
    if (height, width) == size:
        return pixels
    ratio = max(width / size[1], height / size[0])
    inner = int(height / ratio), int(width / ratio)
    pixels = functional.interpolate(pixels, inner, mode="bilinear", align_corners=False)
    rest = size[0] - inner[0], size[1] - inner[1]
    top, left = rest if alignment == "corner" else (rest[0] // 2, rest[1] // 2)
    return functional.pad(pixels, (left, rest[1] - left, top, rest[0] - top))


def aloha_state(state: Tensor) -> Tensor:
    """Turn a state [N, 14] of an Aloha robot into the joints that pi's models were trained with."""
    parts = list(state.unbind(1))
    for joint in _JOINTS:
        parts[joint] = -parts[joint]
    low, high = _GRIPPER_WAY
    for gripper in _GRIPPERS:
        way = parts[gripper] * (high - low) + low
        turn = torch.arcsin(((_HORN**2 + way**2 - _ARM**2) / (2 * _HORN * way)).clamp(-1.0, 1.0))
        parts[gripper] = (turn - _GRIPPER_TURN[0]) / (_GRIPPER_TURN[1] - _GRIPPER_TURN[0])
    return torch.stack(parts, dim=1)


def _aloha_joints(actions: NDArray[Any], *, back: bool) -> NDArray[Any]:
    """Turn pi's joints into Aloha's [..., 14], or ``back``."""
    made = actions.copy()
    made[..., list(_JOINTS)] *= -1
    own, other = (_GRIPPER_JOINT, _GRIPPER_TURN) if back else (_GRIPPER_TURN, _GRIPPER_JOINT)
    for gripper in _GRIPPERS:
        angle = made[..., gripper] * (own[1] - own[0]) + own[0]
        made[..., gripper] = (angle - other[0]) / (other[1] - other[0])
    return made


class Prompts:
    """Instructions, and with pi0.5 states, to padded token ids."""

    def __init__(self, tokenizer: Any, names: Sequence[str], task: str | None, *, limit: int, with_state: bool) -> None:
        """``task``: the instruction if no leaf in ``names`` has one; ``limit``: tokens after which a prompt is cut."""
        require_instruction(names, task)
        self.tokenizer = tokenizer
        self._names, self._task, self._limit, self._with_state = tuple(names), task, limit, with_state

    def __call__(self, leaves: Mapping[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        """Ids int64 [N, L], and which of them are there, bool [N, L]; ``state`` [N, n], scaled to [-1, 1]."""
        texts = instruction_texts(leaves, self._names, self._task, len(state))
        prompts = self._with_states(texts, state) if self._with_state else map(_line, texts)
        return padded([self._ids(prompt) for prompt in prompts], state.device)

    def _ids(self, text: str) -> Tensor:
        return torch.tensor(self.tokenizer(text)["input_ids"][: self._limit], dtype=torch.int64)

    def _with_states(self, texts: Sequence[str], state: Tensor) -> list[str]:
        edges = np.linspace(-1, 1, STATE_BINS + 1)[:-1]
        bins = np.digitize(state.detach().cpu().numpy(), bins=edges) - 1
        return [
            f"Task: {text.strip().replace('_', ' ').replace(chr(10), ' ')}, State: {' '.join(map(str, row))};\nAction: "
            for text, row in zip(texts, bins, strict=True)
        ]


def _line(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
