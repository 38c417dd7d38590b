"""In which order a dataset's tasks are visited: a pure function of the seed, the round and the position."""

from __future__ import annotations

from rlinf.base.random_streams import numpy_generator, rollout_key


class TaskOrder:
    """Position p is task ``permutation(epoch)[p % num_tasks]``; each epoch, and each round, has its own permutations.

    >>> TaskOrder(3, seed=0, shuffle=False).tasks(2, 4)
    [2, 0, 1, 2]
    """

    def __init__(self, num_tasks: int, *, seed: int, shuffle: bool, stream: str = "tasks") -> None:
        """``stream`` names the random stream: datasets of the same size have orders of their own."""
        if num_tasks < 1:
            raise ValueError("the environment has no tasks")
        self.num_tasks, self.seed, self.shuffle, self._stream = num_tasks, seed, shuffle, stream
        self._key: tuple[int, ...] = ()
        self._order: list[int] = []

    def tasks(self, start: int, count: int, *, round: int = 0) -> list[int]:
        """Return the ``count`` task ids from position ``start`` on."""
        return [self._task(position, round) for position in range(start, start + count)]

    def _task(self, position: int, round: int) -> int:
        epoch, index = divmod(position, self.num_tasks)
        if not self.shuffle:
            return index
        key = rollout_key(epoch, round)
        if key != self._key:
            self._order = numpy_generator(self.seed, self._stream, *key).permutation(self.num_tasks).tolist()
            self._key = key
        return self._order[index]
