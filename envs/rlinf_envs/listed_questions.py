"""Questions of a data set, which must not stand in training and in evaluation."""

from __future__ import annotations

from collections.abc import Collection

from rlinf_envs.errors import DatasetError
from rlinf_envs.splits import question_key
from rlinf_envs.tasks import ListedTasks, Task
from rlinf_envs.text import TextTaskEnv

LEFT_OUT = "training rows left out, whose questions are in the evaluation"


def without(tasks: list[Task], questions: Collection[str]) -> list[Task]:
    """Return the tasks whose questions are not in ``questions`` (:func:`rlinf_envs.splits.question_key` of each)."""
    return [task for task in tasks if question_key(task.question) not in questions] if questions else tasks


class ListedQuestions(TextTaskEnv):
    """An environment whose tasks are in memory: its questions, and how some of them are left out."""

    data_notes: dict[str, int | str]
    """What reading the data set has found, for `rlinf check` and a run's first lines."""

    def questions(self) -> frozenset[str]:
        """Return the questions, each as :func:`rlinf_envs.splits.question_key` has it."""
        return frozenset(question_key(task.question) for task in self._listed())

    def leave_out(self, questions: Collection[str]) -> None:
        """Leave out the tasks of these questions, which an evaluation uses; ``data_notes`` counts them.

        Raises:
            DatasetError: no task is left.
        """
        kept = without(self._listed(), questions)
        left_out = self.num_tasks - len(kept)
        if not kept:
            raise DatasetError(
                f"all {left_out} training questions are also in the evaluation: name another file or split in "
                "evaluation.env_kwargs, or other training data"
            )
        self._source = ListedTasks(kept)
        if left_out:
            self.data_notes[LEFT_OUT] = left_out + int(self.data_notes.get(LEFT_OUT, 0))

    def _listed(self) -> list[Task]:
        return [self._source.task(task_id) for task_id in range(self.num_tasks)]
