"""``rlinf/Math-v0``: questions of a dataset, responses checked by math-verify."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rlinf_envs import datasets
from rlinf_envs.custom_rewards import DEFAULT_MEMORY_MB
from rlinf_envs.custom_rewards import DEFAULT_TIMEOUT_S as REWARD_TIMEOUT_S
from rlinf_envs.errors import DatasetError, SettingError
from rlinf_envs.extraction import AnswerFormat, extract, render
from rlinf_envs.instructions import instructions
from rlinf_envs.listed_questions import LEFT_OUT, ListedQuestions, without
from rlinf_envs.marks import format_marks
from rlinf_envs.math.calculator import calculator_of
from rlinf_envs.math.grading import Verdict
from rlinf_envs.math.pool import DEFAULT_TIMEOUT_S as VERIFY_TIMEOUT_S
from rlinf_envs.math.pool import Extraction, VerifierPool
from rlinf_envs.math.rows import Fields, merged, notes_on, question_of, tasks_of
from rlinf_envs.rewards import RewardSum
from rlinf_envs.splits import in_split, none_left, question_key, require_share
from rlinf_envs.steps import StepGrader
from rlinf_envs.tasks import Judgement, ListedTasks, Task
from rlinf_envs.text import Infos
from rlinf_envs.tools.toolbox import Toolbox, ToolSetting, turns_with
from rlinf_envs.typed import typed

MathFormat = Literal["tag", "boxed", "####"]


class MathEnv(ListedQuestions):
    """A dataset of questions with verifiable answers."""

    @typed
    def __init__(
        self,
        num_envs: int = 1,
        *,
        path: str,
        split: str | None = None,
        subset: str | None = None,
        question_field: str | None = None,
        answer_field: str | None = None,
        response_field: str | None = None,
        image_field: str | None = None,
        domain_field: str | None = None,
        on_bad_row: Literal["error", "skip"] = "error",
        repeated_questions: Literal["keep", "merge"] = "keep",
        limit: int | None = None,
        eval_fraction: float = 0.1,
        answer_format: MathFormat = "boxed",
        extraction: Extraction = "lenient",
        cut_responses: Extraction = "strict",
        verify_timeout: float = VERIFY_TIMEOUT_S,
        verify_workers: int = 1,
        prompt_template: str = "{question}",
        system_prompt: str | None = None,
        few_shot: Sequence[Mapping[str, str]] = (),
        reward: Mapping[str, Any] | None = None,
        reward_timeout: float = REWARD_TIMEOUT_S,
        reward_memory_mb: int = DEFAULT_MEMORY_MB,
        steps: Mapping[str, Any] | None = None,
        tool: Literal["calculator"] | None = None,
        tools: Sequence[ToolSetting] = (),
        max_turns: int | None = None,
    ) -> None:
        """
        Args:
            path: JSONL, JSON, Parquet, CSV or TSV file, a folder of them, a folder saved by ``datasets``, or a hub
                name.
            split: a split's name; "train" and "eval" always work and never share a question: "train" leaves out what
                the dataset's own rows for evaluation contain (see :func:`rlinf_envs.datasets.select`).
            subset: configuration of a hub dataset.
            question_field, answer_field, domain_field: names, dots for nested fields and numbers for entries of lists;
                found by themselves for the usual layouts (GSM8K, MATH, DAPO among them) when not given. A question may
                be chat messages: one of the user, and a system message that all rows share.
            response_field: whole responses, which a supervised warm start imitates as they are: text, or chat messages
                of one question and one reply. Rows then need no answer, unless responses to them are to be graded.
            image_field: pictures of the question, which go where it has ``<image>``, or in front of it: one or a list
                of paths (relative ones begin at the file's folder), bytes, ``data:`` URIs, or objects with ``bytes`` or
                ``path``. A picture that cannot be read makes its row a broken one.
            on_bad_row: "error" stops with file and line; "skip" leaves the row out (``skipped_rows``, ``complaints``).
                A question with two answers and an answer that is NaN or infinite are taken, with a warning
                (``doubts``).
            repeated_questions: "keep" makes every row a task; "merge" makes one task of all rows with a question, and
                takes any of their answers as right (`rlinf eval` does so).
            limit: use only the first ``limit`` tasks.
            eval_fraction: share reserved for evaluation where the dataset has no split for it.
            answer_format: how demonstrations end and what the ``format`` reward requires: "boxed", "tag" or "####".
                Answers are found in any of them where extraction is lenient.
            extraction: where a final answer may stand. "lenient": in any format, behind "answer is", or on the last
                line; "strict": in ``answer_format`` alone.
            cut_responses: how responses are read that the length limit ended. "strict": the answer counts where it was
                complete in ``answer_format``; "lenient": they are read like complete ones.
            verify_timeout: deadline of one answer, seconds. verify_workers: verifier processes.
            prompt_template, system_prompt, few_shot, reward, reward_timeout, reward_memory_mb, steps: as for
                ``rlinf/ReasoningGym-v0``.
            tool: "calculator" makes it a conversation (see :mod:`rlinf_envs.math.calculator`).
            tools: what the policy may call (see ``rlinf_envs.tools.toolbox``).
            max_turns: responses per conversation, after which it is truncated; with tools 8 by default, else 1.

        Raises:
            DatasetError: the dataset cannot be read, has a broken row (see ``on_bad_row``), or no row at all.
        """
        if limit is not None and limit < 1:
            raise SettingError(f"limit must be at least 1, got {limit}")
        calculator = calculator_of(tool, tools)
        require_share(eval_fraction)
        selection = datasets.select(path, split, subset)
        fields = Fields(question_field, answer_field, domain_field, response_field, image_field)
        rows = tasks_of(selection.records, fields, default_domain=Path(path).stem, on_bad_row=on_bad_row)
        self.data_notes = notes_on(rows)
        tasks, self.complaints, self.doubts = rows.tasks, rows.complaints, rows.conflicts + rows.doubts
        if repeated_questions == "merge":
            tasks, self.doubts = merged(tasks), rows.doubts
        if self.doubts:
            self.data_notes["odd rows"] = len(self.doubts)
            listed = "\n".join(self.doubts[:5]) + ("\n..." if len(self.doubts) > 5 else "")
            odd = "1 odd row" if len(self.doubts) == 1 else f"{len(self.doubts)} odd rows"
            warnings.warn(f"{odd} in {path}:\n{listed}", stacklevel=2)
        evaluated = {question_key(result) for record in selection.held_out if (result := question_of(record, fields))}
        kept = without(tasks, evaluated)
        if len(kept) < len(tasks):
            self.data_notes[LEFT_OUT] = len(tasks) - len(kept)
            tasks = kept
        if rows.system is not None and system_prompt is not None and rows.system != system_prompt:
            self.data_notes["system message of the rows"] = "env.kwargs.system_prompt replaces it"
        if selection.by_hash:
            tasks = [
                task for task in tasks if in_split(task.question, "eval" if split == "eval" else "train", eval_fraction)
            ]
        if not tasks:
            share = eval_fraction if selection.by_hash else None
            left_out = len(self.complaints)
            raise DatasetError(none_left(path, split, rows=len(rows.tasks), left_out=left_out, eval_fraction=share))
        self.pool = VerifierPool(workers=verify_workers, timeout_s=verify_timeout)
        super().__init__(
            num_envs,
            ListedTasks([_demonstrable(task, answer_format) for task in tasks[:limit]]),
            MathJudge(self.pool, answer_format, extraction=extraction, cut_responses=cut_responses),
            prompt_template_text=prompt_template,
            few_shot=few_shot,
            system_prompt=rows.system if system_prompt is None else system_prompt,
            rewards=RewardSum(
                reward, default_format=answer_format, custom_timeout_s=reward_timeout, custom_memory_mb=reward_memory_mb
            ),
            step_grader=StepGrader(steps) if steps is not None else None,
            dialogue=calculator,
            tools=Toolbox(tools) if tools else None,
            max_turns=turns_with(tools or ([tool] if tool else []), max_turns),
        )
        self.data_notes |= self._rewards.doubts(self.prompt(0), self._task(0))
        paid = format_marks(reward, answer_format)
        self.response_marks = (*paid, *(("<calc>",) if tool else ()))
        # Responses to imitate have a form of their own.
        self.instructions = {} if response_field else instructions(answer_format, paid, calculator=tool is not None)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[str, ...], Infos]:
        """Start conversations.

        Raises:
            DatasetError: a task has no answer, so no response to it can be graded."""
        started = super().reset(seed=seed, options=options)
        for task in self._tasks:
            if not task.answer:
                raise datasets.DatasetError(
                    f"there is no answer to grade responses to {task.question[:80]!r} by: name its field with "
                    "env.kwargs.answer_field, or set evaluation.size: 0 for supervised training alone (rlinf sft)"
                )
        return started

    @property
    def skipped_rows(self) -> int:
        """Broken rows that were left out; ``complaints`` gives the reasons, with file and line."""
        return len(self.complaints)


class MathJudge:
    """Grades in a verifier pool."""

    def __init__(
        self,
        pool: VerifierPool,
        answer_format: AnswerFormat,
        *,
        extraction: Extraction = "lenient",
        cut_responses: Extraction = "strict",
    ) -> None:
        self._pool, self._format = pool, answer_format
        self._extraction, self._strict_when_cut = extraction, cut_responses == "strict"

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        return self._judge(responses, tasks, cut=False)

    def judge_cut(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        return self._judge(responses, tasks, cut=self._strict_when_cut)

    def _judge(self, responses: Sequence[str], tasks: Sequence[Task], *, cut: bool) -> list[Judgement]:
        verdicts = self._verify(responses, [task.answer for task in tasks], cut=cut)
        again = [
            (index, other)
            for index, (task, verdict) in enumerate(zip(tasks, verdicts, strict=True))
            for other in (() if verdict.correct else task.other_answers)
        ]
        others = self._verify([responses[index] for index, _ in again], [other for _, other in again], cut=cut)
        for (index, _), verdict in zip(again, others, strict=True):
            if verdict.correct:
                verdicts[index] = verdict
        return [Judgement(verdict.status, float(verdict.correct), verdict.extracted) for verdict in verdicts]

    def _verify(self, responses: Sequence[str], answers: Sequence[str], *, cut: bool) -> list[Verdict]:
        if not responses:
            return []
        result = self._pool.verify(responses, answers, extraction=self._extraction, answer_format=self._format, cut=cut)
        return list(result)

    def render(self, answer: str) -> str:
        return render(answer, self._format)

    def close(self) -> None:
        self._pool.close()


def _demonstrable(task: Task, answer_format: AnswerFormat) -> Task:
    """Return the task with a solution that ends in ``answer_format``, the format that the policy must use later."""
    if task.solution is None or extract(task.solution, answer_format) is not None:
        return task
    body = task.solution.rsplit("####", 1)[0].rstrip()
    solution = f"{body}\n{render(task.answer, answer_format)}"
    return replace(task, solution=solution)
