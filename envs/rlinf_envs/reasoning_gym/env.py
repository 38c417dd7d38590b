"""``rlinf/ReasoningGym-v0``: any task family of reasoning-gym as a text environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rlinf_envs.custom_rewards import DEFAULT_MEMORY_MB, DEFAULT_TIMEOUT_S
from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import AnswerFormat, extract, render
from rlinf_envs.instructions import instructions
from rlinf_envs.marks import MARKS, format_marks
from rlinf_envs.math.calculator import calculator_of
from rlinf_envs.reasoning_gym.readings import readings
from rlinf_envs.reasoning_gym.scoring import FamilyScorer
from rlinf_envs.reasoning_gym.source import GeneratedTasks, make_components, positions
from rlinf_envs.reasoning_gym.worked import DemonstrationStyles, worked_steps
from rlinf_envs.rewards import RewardSum
from rlinf_envs.splits import check_split
from rlinf_envs.steps import StepGrader
from rlinf_envs.tasks import Judgement, Task
from rlinf_envs.text import TextTaskEnv
from rlinf_envs.tools.toolbox import Toolbox, ToolSetting, turns_with
from rlinf_envs.typed import typed


class ReasoningGymEnv(TextTaskEnv):
    """Generated tasks, scored by their family."""

    @typed
    def __init__(
        self,
        num_envs: int = 1,
        *,
        task: str | None = None,
        tasks: Sequence[Mapping[str, Any]] = (),
        size: int = 1000,
        seed: int = 0,
        params: Mapping[str, Any] | None = None,
        curriculum: Mapping[str, Any] | None = None,
        split: str = "train",
        eval_fraction: float = 0.1,
        answer_format: AnswerFormat = "tag",
        cut_responses: Literal["strict", "lenient"] = "strict",
        partial_credit: bool = False,
        score_timeout: float = 5.0,
        score_workers: int = 1,
        prompt_template: str = "{question}",
        system_prompt: str | None = None,
        few_shot: Sequence[Mapping[str, str]] = (),
        reward: Mapping[str, Any] | None = None,
        reward_timeout: float = DEFAULT_TIMEOUT_S,
        reward_memory_mb: int = DEFAULT_MEMORY_MB,
        steps: Mapping[str, Any] | None = None,
        demonstrations: Mapping[str, float] | None = None,
        tool: Literal["calculator"] | None = None,
        tools: Sequence[ToolSetting] = (),
        max_turns: int | None = None,
    ) -> None:
        """
        Args:
            task: one family by name; ``tasks``: a mixture, ``[{task, weight, params, curriculum}, ...]``.
            size: number of tasks in this split (eval: at most; all different).
            seed: seed of the generators.
            params: parameters of the family's config.
            curriculum: ``{level: n}`` or levels by attribute.
            split: "train", "eval" or "all". A question's split depends on its text alone, so train and eval share no
                question whatever their seeds and sizes.
            eval_fraction: share of all questions reserved for evaluation; the same on both sides.
            answer_format: where the final answer stands: "tag", "boxed", "####" or "plain" (the whole response).
            cut_responses: how responses are read that the length limit ended. "strict": the answer counts if it was
                complete by then, which no "plain" one is; "lenient": they are read like complete ones.
            partial_credit: pass on scores between 0 and 1. Off by default: several families give part of the points
                to any text that contains the answer, which is learned before the task is.
            score_timeout: deadline of one answer in seconds, for families that parse or run what they are given.
            score_workers: processes for those families; none starts for the others.
            prompt_template, system_prompt, few_shot: see ``rlinf_envs.prompts``.
            reward: see ``rlinf_envs.rewards``.
            reward_timeout: deadline of one call of a custom reward function, seconds.
            reward_memory_mb: what its process and all that it starts may take, MiB; 0 means no limit.
            steps: see ``rlinf_envs.steps``.
            tool: "calculator" makes it a conversation (see :mod:`rlinf_envs.math.calculator`).
            tools: what the policy may call (see ``rlinf_envs.tools.toolbox``); max_turns: responses of a conversation
                with a tool, 8 by default.
            demonstrations: shares of the styles of demonstrations, see ``rlinf_envs.reasoning_gym.worked``.
        """
        calculator = calculator_of(tool, tools)
        self._styles = DemonstrationStyles(demonstrations, calculator=calculator is not None)
        reward_sum = RewardSum(
            reward, default_format=answer_format, custom_timeout_s=reward_timeout, custom_memory_mb=reward_memory_mb
        )
        checked_split = check_split(split, eval_fraction)
        if size < 1:
            raise SettingError(f"size must be at least 1, got {size}")
        span = positions(size, checked_split, eval_fraction)
        components = make_components(task, tasks, seed=seed, size=span, params=params, curriculum=curriculum)
        source = GeneratedTasks(components, seed=seed, size=size, split=checked_split, eval_fraction=eval_fraction)
        super().__init__(
            num_envs,
            source,
            FamilyJudge(
                source,
                FamilyScorer(workers=score_workers, timeout_s=score_timeout),
                answer_format,
                partial_credit=partial_credit,
                strict_when_cut=cut_responses == "strict",
            ),
            prompt_template_text=prompt_template,
            few_shot=few_shot,
            system_prompt=system_prompt,
            rewards=reward_sum,
            step_grader=StepGrader(steps) if steps is not None else None,
            dialogue=calculator,
            tools=Toolbox(tools) if tools else None,
            max_turns=turns_with(tools or ([tool] if tool else []), max_turns),
        )
        # An answer in another format is not found at all, which matters where right answers are paid for.
        own = (MARKS[answer_format],) if answer_format in MARKS and reward_sum.pays("correctness") else ()
        paid = format_marks(reward, answer_format)
        self.response_marks = tuple(dict.fromkeys((*own, *paid, *(("<calc>",) if calculator else ()))))
        self.instructions = instructions(answer_format, paid, calculator=calculator is not None)

    def demonstrations(self, task_ids: Sequence[int]) -> Sequence[tuple[str, str | list[str]]]:
        """Return (prompt, correct response) for each id, in the configured styles.

        Of conversations with a calculator the second is the turns of policy and calculator, the policy first and
        last.

        Raises:
            ValueError: the family of a task names no answer (boxnet, rush_hour).
        """
        pairs = [
            (self.prompt(i), self._styles.demonstration(self._answered_task(i), self._judge.render)) for i in task_ids
        ]
        return pairs if self._dialogue else [(prompt, response) for prompt, (response,) in pairs]

    def _worked(self, task: Task) -> str | None:
        """Return the steps alone."""
        steps = worked_steps(task)
        return None if steps is None else "\n".join(steps)


class FamilyJudge:
    """Grades with the scoring function of the task's own family."""

    def __init__(
        self,
        source: GeneratedTasks,
        scorer: FamilyScorer,
        answer_format: AnswerFormat,
        *,
        partial_credit: bool,
        strict_when_cut: bool,
    ) -> None:
        self._source, self._scorer, self._format = source, scorer, answer_format
        self._partial_credit, self._strict_when_cut = partial_credit, strict_when_cut

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        return self._judge(responses, tasks, cut=False)

    def judge_cut(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        return self._judge(responses, tasks, cut=self._strict_when_cut)

    def _judge(self, responses: Sequence[str], tasks: Sequence[Task], *, cut: bool) -> list[Judgement]:
        extracted = [
            extract(response, self._format, cut=cut, several_lines="\n" in task.answer)
            for response, task in zip(responses, tasks, strict=True)
        ]
        rows = [
            (index, reading)
            for index, answer in enumerate(extracted)
            if answer is not None
            for reading in readings(answer, tasks[index].answer)
        ]
        scores = self._scorer.score([(self._source.family(tasks[i]), text, tasks[i].row) for i, text in rows])
        best: dict[int, float | None] = {}
        for (index, _), score in zip(rows, scores, strict=True):
            best[index] = max((one for one in (best.get(index), score) if one is not None), default=None)
        return [
            self._judgement(best[index], answer) if index in best else Judgement("unparsable", 0.0, None)
            for index, answer in enumerate(extracted)
        ]

    def _judgement(self, score: float | None, extracted: str | None) -> Judgement:
        if score is None:
            return Judgement("timeout", 0.0, extracted)
        if score >= 1.0:
            return Judgement("correct", 1.0, extracted)
        return Judgement("wrong", score if self._partial_credit else 0.0, extracted)

    def render(self, answer: str) -> str:
        return render(answer, self._format)

    def close(self) -> None:
        self._scorer.close()
