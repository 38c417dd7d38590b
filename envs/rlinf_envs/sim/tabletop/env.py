"""The gymnasium environment `rlinf_envs:rlinf/Tabletop-v0`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import start_number
from rlinf_envs.sim.pace import Pace
from rlinf_envs.sim.tabletop.expert import expert_action
from rlinf_envs.sim.tabletop.progress import way_to_go
from rlinf_envs.sim.tabletop.tasks import Split, Start, Task, other_goal, solved, spoilt, start_state
from rlinf_envs.sim.tabletop.view import draw
from rlinf_envs.sim.tabletop.world import TIP_RADIUS
from rlinf_envs.typed import typed

RewardMode = Literal["sparse", "dense"]

_INSTRUCTION_LENGTH = 48
_LETTERS = "abcdefghijklmnopqrstuvwxyz "
_PICTURE = 256  # pixels of films


class TabletopEnv(gymnasium.Env):
    """An arm tip over a table of coloured shapes, instructed in words what to touch or where to push it.

    Observation: ``image`` uint8 [size, size, 3] from above, ``state`` float32 [2] (the tip, table lengths) and
    ``instruction``. Action: the tip's move, [-1, 1] along x and y. Reward: 1 when the task is solved, else 0 (see
    ``reward_mode``). Solving the task ends the episode; in `touch`, touching another body does too.

    Args:
        task: `touch` the named body, or `push` it to the named edge.
        split: start states of training, or others that training never sees.
        num_states: how many start states there are; a reset's seed picks one. ``options={"reset_state_id": n}``
            of reset names it; ``{"other_goal": True}`` selects another goal in the same start state.
        bodies: how many lie on the table, all different.
        clear_ways: no body lies near the straight way from the tip's start to another, so that the only question
            is where to go, not how to get around things.
        image_size: pixels of a side.
        max_steps: the episode is truncated after this many steps.
        reward_mode: `dense` adds the share of the way from the start to the goal that a step has covered
            (negative for going back; the way leads around bodies that must not be touched), and -1 for touching a
            wrong body.
        expert_speed: the share of the tip's reach that the demonstrator uses in a step, above 0 and at most 1.
            People who demonstrate to a robot are slow and careful, and a policy that imitates them is as slow.
            With a small ``max_steps`` that is what reinforcement learning can gain over imitation.
        expert_haste: the share of steps, below 1, in which it uses its whole reach nevertheless. They show an
            imitating policy that there are faster moves.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    @typed
    def __init__(
        self,
        task: Task = "touch",
        split: Split = "train",
        num_states: int = 512,
        bodies: int = 3,
        clear_ways: bool = False,
        image_size: int = 32,
        max_steps: int = 32,
        reward_mode: RewardMode = "sparse",
        expert_speed: float = 1.0,
        expert_haste: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        if not 1 <= bodies <= 4 or num_states < 1 or image_size < 16 or max_steps < 1:
            raise ValueError(
                f"bodies must be 1 to 4, num_states and max_steps at least 1, image_size at least 16; "
                f"got {bodies}, {num_states}, {max_steps} and {image_size}"
            )
        self._pace = Pace(expert_speed, expert_haste)
        self.task, self.split, self.num_states, self.max_steps = task, split, num_states, max_steps
        self.render_mode = render_mode
        self._bodies, self._clear_ways, self._size = bodies, clear_ways, image_size
        self._start: Start = start_state(task, split, 0, bodies, clear_ways)
        self._world = deepcopy(self._start.world)
        self._steps = 0
        self._dense = reward_mode == "dense"
        self._whole_way = self._way = 0.0
        self.draws_observations = True
        """While it is false, observations have an empty image: it will not be used."""
        self._empty = np.zeros((image_size, image_size, 3), dtype=np.uint8)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (image_size, image_size, 3), np.uint8),
                "state": spaces.Box(TIP_RADIUS, 1.0 - TIP_RADIUS, (2,), np.float32),
                "instruction": spaces.Text(_INSTRUCTION_LENGTH, charset=_LETTERS),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin in the start state that ``options["reset_state_id"]`` names, else in one that the seed picks."""
        super().reset(seed=seed)
        self.draws_observations = True
        number = start_number(self.num_states, options, self.np_random)
        self._start = start_state(self.task, self.split, number, self._bodies, self._clear_ways)
        self._world = deepcopy(self._start.world)
        self._steps = 0
        info: dict[str, Any] = {"reset_state_id": number}
        if options is not None and options.get("other_goal"):
            self._start = other_goal(self._start)
            info["other_goal"] = True
        if self._dense:
            self._whole_way = self._way = way_to_go(self._start.goal, self._world)
        return self._observation(), info

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        touched = self._world.move(np.asarray(action, dtype=np.float64))
        self._steps += 1
        goal = self._start.goal
        # Both at once counts as spoilt: the wrong body was touched, whatever else was.
        spoiled = spoilt(goal, touched)
        success = solved(goal, self._world, touched) and not spoiled
        over = success or spoiled
        truncated = self._steps >= self.max_steps and not over
        reward = float(success) + (self._progress() - float(spoiled) if self._dense else 0.0)
        return self._observation(), reward, over, truncated, {"success": success}

    def expert_action(self) -> np.ndarray:
        """Return the action of the scripted demonstrator now: float32 [2]."""
        return expert_action(self._start.goal, self._world, self._pace.draw(self.np_random))

    def way_to_go(self) -> float:
        """Return how far the tip, and what it pushes, still have to go: table lengths."""
        return way_to_go(self._start.goal, self._world)

    def render(self) -> np.ndarray:
        """Draw the table from above, uint8 [256, 256, 3]."""
        return self._frame(_PICTURE)

    def _progress(self) -> float:
        """Compute the share of the start's way that the last step has covered."""
        before, self._way = self._way, way_to_go(self._start.goal, self._world)
        return (before - self._way) / self._whole_way

    def _observation(self) -> dict[str, Any]:
        return {
            "image": self._frame(self._size) if self.draws_observations else self._empty,
            "state": np.clip(self._world.tip, TIP_RADIUS, 1.0 - TIP_RADIUS).astype(np.float32),
            "instruction": self._start.goal.instruction,
        }

    def _frame(self, size: int) -> np.ndarray:
        return draw(size, self._world.tip, self._world.bodies, self._start.kinds)
