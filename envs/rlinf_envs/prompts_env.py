"""``rlinf/Prompts-v0``: a dataset of prompts, graded by reward terms alone: programs, constraints, judges, services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rlinf.base.json_text import listed_messages
from rlinf.data.picture_fields import field_pictures, with_pictures
from rlinf.data.pictures import PictureError
from rlinf_envs import datasets
from rlinf_envs.chat_rows import system_and_question, value_at
from rlinf_envs.custom_rewards import DEFAULT_MEMORY_MB, DEFAULT_TIMEOUT_S
from rlinf_envs.errors import DatasetError, SettingError
from rlinf_envs.listed_questions import LEFT_OUT, ListedQuestions, without
from rlinf_envs.rewards import RewardSum
from rlinf_envs.splits import in_split, none_left, question_key, require_share
from rlinf_envs.suggest import unknown
from rlinf_envs.tasks import Judgement, ListedTasks, Task
from rlinf_envs.tools.toolbox import Toolbox, ToolSetting, turns_with
from rlinf_envs.typed import typed


class PromptsEnv(ListedQuestions):
    """Every row is a prompt; ``reward`` alone decides what a response is worth."""

    @typed
    def __init__(
        self,
        num_envs: int = 1,
        *,
        path: str,
        reward: Mapping[str, Any],
        prompt_field: str = "prompt",
        answer_field: str | None = None,
        response_field: str | None = None,
        image_field: str | None = None,
        domain_field: str | None = None,
        solved_by: str | None = None,
        split: str | None = None,
        subset: str | None = None,
        limit: int | None = None,
        eval_fraction: float = 0.1,
        on_bad_row: Literal["error", "skip"] = "error",
        prompt_template: str = "{question}",
        system_prompt: str | None = None,
        few_shot: Sequence[Mapping[str, str]] = (),
        reward_timeout: float = DEFAULT_TIMEOUT_S,
        reward_memory_mb: int = DEFAULT_MEMORY_MB,
        tools: Sequence[ToolSetting] = (),
        max_turns: int | None = None,
    ) -> None:
        """
        Args:
            path, split, subset, limit, eval_fraction, on_bad_row: as for ``rlinf/Math-v0``.
            reward: the terms (see ``rlinf_envs.rewards``); ``correctness`` is none of them here.
            prompt_field: text of the prompt in a row, or chat messages of the user alone; dots reach into a field.
            answer_field: a reference, for the terms that read one.
            response_field: a response to imitate in a warm start. domain_field: what the row is counted under.
            solved_by: the term whose value of 1 counts as solved; the first one by default.
            image_field: pictures of the prompt, as for ``rlinf/Math-v0``.
            tools: what the policy may call (see ``rlinf_envs.tools.toolbox``); max_turns: responses of a conversation
                then, 8 by default.
            prompt_template, system_prompt, few_shot, reward_timeout, reward_memory_mb: as for ``rlinf/Math-v0``.

        Raises:
            DatasetError: the dataset cannot be read, has a broken row (see ``on_bad_row``), or no row at all.
        """
        if limit is not None and limit < 1:
            raise SettingError(f"limit must be at least 1, got {limit}")
        if "correctness" in reward:
            raise SettingError(
                "reward.correctness is the verdict of a verifier, and rlinf/Prompts-v0 has none. For mathematical "
                "answers set env.id: rlinf_envs:rlinf/Math-v0, for answers of letters or words reward: {exact: 1.0}"
            )
        rewards = RewardSum(reward, custom_timeout_s=reward_timeout, custom_memory_mb=reward_memory_mb)
        if not rewards.weights:
            raise SettingError("reward names no term: name at least one term to score responses")
        solved = solved_by or next(iter(rewards.weights))
        if solved not in rewards.weights:
            raise SettingError(f"solved_by: {unknown('reward term', solved, rewards.weights)}")
        fields = {"question": prompt_field, "answer": answer_field, "response": response_field, "domain": domain_field}
        fields["image"] = image_field
        require_share(eval_fraction)
        selection = datasets.select(path, split, subset)
        tasks: list[Task] = []
        self.complaints: list[str] = []
        repeated = Counter[str]()
        for record in selection.records:
            repeated.update(record.repeated)
            task = _graded(_task(record, fields, Path(path).stem), rewards, record.location)
            if isinstance(task, Task):
                tasks.append(task)
            elif on_bad_row == "error":
                raise DatasetError(task)
            else:
                self.complaints.append(task)
        read = tasks
        held_out_fields = {"question": prompt_field, "image": image_field}
        held_out = (_task(record, held_out_fields, "") for record in selection.held_out)
        tasks = without(tasks, {question_key(one.question) for one in held_out if isinstance(one, Task)})
        self.data_notes: dict[str, int | str] = {}
        if repeated:
            self.data_notes[datasets.UNREAD] = datasets.counted(repeated, 0)
        if len(tasks) < len(read):
            self.data_notes[LEFT_OUT] = len(read) - len(tasks)
        if selection.by_hash:
            requested: Literal["train", "eval"] = "eval" if split == "eval" else "train"
            tasks = [task for task in tasks if in_split(task.question, requested, eval_fraction)]
        if not tasks:
            share = eval_fraction if selection.by_hash else None
            left_out = len(self.complaints)
            raise DatasetError(none_left(path, split, rows=len(read), left_out=left_out, eval_fraction=share))
        super().__init__(
            num_envs,
            ListedTasks(tasks[:limit]),
            _ByTerm(rewards, solved),
            prompt_template_text=prompt_template,
            few_shot=few_shot,
            system_prompt=system_prompt,
            rewards=rewards,
            solved_by=solved,
            tools=Toolbox(tools) if tools else None,
            max_turns=turns_with(tools, max_turns),
        )
        self.data_notes |= rewards.doubts(self.prompt(0), self._task(0))

    @property
    def skipped_rows(self) -> int:
        """Broken rows that were left out; ``complaints`` gives the reasons, with file and line."""
        return len(self.complaints)


class _ByTerm:
    """No verdict of its own: a reward term gives it, and the answer if it compares one."""

    def __init__(self, rewards: RewardSum, solved: str) -> None:
        self._rewards, self._solved = rewards, solved

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        answers = self._rewards.answers(self._solved, responses)
        if answers is None:
            return [Judgement("wrong", 0.0, None) for _ in responses]
        return [Judgement("unparsable" if answer is None else "wrong", 0.0, answer) for answer in answers]

    def render(self, answer: str) -> str:
        return answer

    def close(self) -> None: ...


def _graded(task: Task | str, rewards: RewardSum, location: str) -> Task | str:
    """Return the task unless a reward term cannot read its row: then the reason."""
    if isinstance(task, Task):
        try:
            rewards.check_row(task.row)
        except SettingError as error:
            return f"{location}: {error}"
    return task


def _task(record: datasets.Record, fields: Mapping[str, str | None], domain: str) -> Task | str:
    """Return the task of a row, or what is wrong with it."""
    if record.row is None:
        return f"{record.location}: {record.problem}"
    results: dict[str, str] = {}
    folder = record.folder
    for part, name in fields.items():
        if name is None:
            continue
        value = value_at(record.row, name)
        if value is None and name not in record.row:
            return f"{record.location}: {unknown('field', name, map(str, record.row))} (env.kwargs.{_KEYS[part]})"
        if part == "question":
            try:
                value = listed_messages(value)
                system, value = system_and_question(value, name, folder) if isinstance(value, list) else (None, value)
            except ValueError as error:
                return f"{record.location}: {error}"
            if system is not None:
                fix = f"set env.kwargs.prompt_field: {name}.1.content, and env.kwargs.system_prompt"
                return f"{record.location}: {name} has a system message: {fix}"
        if part == "image":
            try:
                results["question"] = with_pictures(results["question"], field_pictures(value, folder))
            except PictureError as error:
                return f"{record.location}: the image field {name!r}: {error}"
            continue
        if part != "answer" and not isinstance(value, str):
            return f"{record.location}: the field {name} must be text, got {type(value).__name__}"
        results[part] = str(value)
    if not results["question"].strip():
        return f"{record.location}: the prompt is empty"
    return Task(
        results["question"],
        results.get("answer", ""),
        results.get("domain", domain),
        row=record.row,
        response=results.get("response"),
    )


_KEYS = {
    "question": "prompt_field",
    "answer": "answer_field",
    "response": "response_field",
    "domain": "domain_field",
    "image": "image_field",
}
