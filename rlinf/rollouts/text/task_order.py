"""In which order a dataset's tasks are visited: a pure function of the seed and the position."""

from __future__ import annotations

from rlinf.streams import numpy_generator


class TaskOrder:
    """Position p is task ``permutation(epoch)[p % num_tasks]``; each epoch has a permutation of its own."""

    def __init__(self, num_tasks: int, *, seed: int, shuffle: bool) -> None:
        if num_tasks < 1:
            raise ValueError("the environment has no tasks")
        self.num_tasks, self.seed, self.shuffle = num_tasks, seed, shuffle
        self.position = 0
        self._epoch = -1
        self._order: list[int] = []

    def take(self, count: int) -> list[int]:
        """The next ``count`` task ids."""
        taken = [self._task(self.position + i) for i in range(count)]
        self.position += count
        return taken

    def _task(self, position: int) -> int:
        epoch, place = divmod(position, self.num_tasks)
        if not self.shuffle:
            return place
        if epoch != self._epoch:
            self._order = numpy_generator(self.seed, "tasks", epoch).permutation(self.num_tasks).tolist()
            self._epoch = epoch
        return self._order[place]
