"""Sub-environments that are filmed while they are stepped: where the environment lives, a frame at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rlinf.datasets.video_encoder import FilmEncoder
from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv, needs_process
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vec_env import StepResult
from rlinf.rollouts.video.film_track import FilmTrack, knots_of
from rlinf.rollouts.video.filmable import filmable_env
from rlinf.rollouts.video.tiles import Grid, Tile, grid_size
from rlinf.schema import EnvConfig

# Simulators that make more frames a second than this are shown every n-th step.
_MOST_FPS = 30.0
_USUAL_FPS = 30.0


class FilmedVecEnv:
    """Fits `VecEnv`. An episode's tile is found by its start seed: a second attempt replaces the first.

    A frame or a file that fails ends the film and nothing else: ``problem`` then states why, and stepping goes
    on.
    """

    def __init__(self, options: EnvConfig, num_envs: int) -> None:
        self._vec_env: SyncVecEnv | IsolatedVecEnv
        if needs_process(options):
            self._vec_env = IsolatedVecEnv(options, num_envs, draws=True)
        else:
            self._vec_env = SyncVecEnv(options, num_envs, filmable_env)
        self.num_envs = num_envs
        self.observation_space = self._vec_env.observation_space
        self.action_space = self._vec_env.action_space
        self.observations = self._vec_env.observations
        fps = float(self._vec_env.metadata.get("render_fps") or _USUAL_FPS)
        self._every = max(1, int(np.ceil(fps / _MOST_FPS)))
        self._fps = fps / self._every
        self.problem: str | None = None
        self._film: FilmEncoder | None = None
        self._grid = Grid()
        self._tiles: dict[int, Tile] = {}
        self._tile_of: dict[int, Tile] = {}
        self._shown: dict[int, list[int]] = {}
        """By start seed: the steps done of its episode at each frame of the film."""
        self._calls = 0

    @property
    def last_failure(self) -> str:
        return self._vec_env.last_failure

    @contextmanager
    def filming(self, path: Path, seeds: Sequence[int]) -> Iterator[None]:
        """Film the episodes from these start seeds that are played inside the block.

        They become the video ``path``, in this order."""
        film = FilmEncoder(path, self._fps)
        self._film, self._grid, self._calls, self.problem = film, Grid(), 0, None
        self._tiles = {seed: Tile(number) for number, seed in enumerate(seeds)}
        self._tile_of = {}
        self._shown = {seed: [] for seed in seeds}
        try:
            yield
        except BaseException:
            film.close(keep=False)
            raise
        try:
            film.close(keep=self.problem is None)
        except Exception as error:  # the disk is full
            self.problem = _words(error)

    def track(self, seed: int) -> FilmTrack | None:
        """Find the episode from a start seed in the newest film; None if it is in none, or if the film failed."""
        if self.problem is not None or not self._shown.get(seed):
            return None
        return FilmTrack(self._tiles[seed].number, grid_size(len(self._tiles)), self._fps, knots_of(self._shown[seed]))

    def reset(self, env_indices: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        failed = self._vec_env.reset(env_indices, seeds)
        for position, (env_index, seed) in enumerate(zip(env_indices, seeds, strict=True)):
            tile = self._tiles[seed] = self._tile_of[env_index] = Tile(self._tiles[seed].number)
            if position not in failed:
                self._draw(env_index, tile)
        self._shoot()
        return failed

    def step(self, env_indices: Sequence[int], actions: np.ndarray, *, observe: bool = True) -> StepResult:
        result = self._vec_env.step(env_indices, actions, observe=observe)
        self._calls += 1
        due = self._calls % self._every == 0
        ends = result.terminated | result.truncated
        for position, env_index in enumerate(env_indices):
            if position in result.failed:
                continue
            tile = self._tile_of[env_index]
            tile.step += 1
            tile.reward = float(result.rewards[position])
            tile.total += tile.reward
            if result.has_success[position]:
                tile.success = bool(tile.success or result.success[position])
            tile.over = bool(ends[position])
            if due or tile.over:
                self._draw(env_index, tile)
        if due or ends.any():
            self._shoot()
        return result

    def restart(self, env_index: int) -> None:
        self._vec_env.restart(env_index)

    def close(self) -> None:
        self._vec_env.close()

    def _draw(self, env_index: int, tile: Tile) -> None:
        if self.problem is None:
            try:
                tile.frame = self._vec_env.render(env_index)
            except (Exception, SystemExit) as error:  # whatever a renderer raises ends the film, not the evaluation
                self.problem = _words(error)

    def _shoot(self) -> None:
        """Write a picture of all episodes, once each has a frame."""
        if self.problem is not None or self._film is None or any(tile.frame is None for tile in self._tiles.values()):
            return
        try:
            self._film.write(self._grid.draw(list(self._tiles.values())))
            for seed, tile in self._tiles.items():
                self._shown[seed].append(tile.step)
        except Exception as error:  # a full disk, an encoder that is not there
            self.problem = _words(error)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
