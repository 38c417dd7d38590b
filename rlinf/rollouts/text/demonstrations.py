"""The warm start of language models: imitation of the conversations that the environment demonstrates."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.random_streams import numpy_generator
from rlinf.data.batch import Batch
from rlinf.data.pictures import described, pictures_of
from rlinf.rollouts.text.conversation import Row, TextEnvs
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.hints import hinted_prompt
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.tasks.curriculum import Curriculum
from rlinf.rollouts.text.tasks.mixture_schedule import MixtureSchedule
from rlinf.rollouts.text.to_batch import imitation_batch
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.rollouts.text.tokens.stop_texts import ended
from rlinf.rollouts.text.tokens.tokenizer_marks import TokenizerMarks
from rlinf.schema import SftConfig

_NOTE_CHARS = 160
"""Of a prompt or a response in a note."""
_CANDIDATES, _ROUNDS = 16, 64
"""Tasks that are searched at once for easy ones, and how often."""


class TextDemonstrations:
    """Draws supervised batches from the demonstrations of the first training tasks.

    Of a mixture each environment has its share of all demonstrations so far, to within one.
    """

    def __init__(
        self,
        envs: TextEnvs,
        members: Sequence[TextMixtureEnv],
        sft: SftConfig,
        *,
        seed: int,
        curriculum: Curriculum | None = None,
        hint: str | None = None,
    ) -> None:
        """``curriculum``: easy tasks are demonstrated first, if it makes the warm start follow it. ``hint``: what
        `sft.hinted` of the prompts are written with."""
        self._envs, self._members, self._sft, self._seed = envs, members, sft, seed
        self._curriculum, self._hint = curriculum, hint
        self._pools = [min(member.num_tasks, sft.max_tasks or member.num_tasks) for member in members]
        self._marks = [TokenizerMarks(member.renderer) for member in members]
        self._shares = MixtureSchedule([member.weight for member in members])

    def notes(self) -> Mapping[str, int | str]:
        """Return an example of what the warm start imitates: the environment may have made it of a bare answer."""
        if not self._sft.steps or self._sft.data is not None:
            return {}
        (one,) = self._envs.demonstrations("train", [0])
        texts = map(described, (one.prompt, one.text))
        short = [textwrap.shorten(text, _NOTE_CHARS, placeholder=" ...") for text in texts]
        return {"sft imitates, for example": " -> ".join(short)}

    def batch(self, step: int) -> Batch:
        """Build the supervised batch of warm-start step ``step``: correct responses with advantage 1."""
        picked = self._picked(step)
        is_hinted = numpy_generator(self._seed, "sft hints", step).random(len(picked)) < self._sft.hinted
        rows = []
        for index, one in enumerate(self._envs.demonstrations("train", picked)):
            member = picked[index] % len(self._members)
            renderer = self._members[member].renderer
            tokens, mask = _encoded(one, renderer, self._marks[member])
            prompt = self._hinted(one) if is_hinted[index] else one.prompt
            texts = [one.prompt, *(observation.text for observation in one.observations)]
            rows.append(
                Row.imitated(
                    index,
                    picked[index],
                    (prompt, one.responses[-1]),
                    prompt_ids=renderer.prompt(prompt),
                    tokens=tokens,
                    mask=mask,
                    pictures=[uri for text in texts for uri in pictures_of(text)],
                )
            )
        return imitation_batch(rows, pad_token_id=self._members[0].renderer.tokenizer.pad_token_id)

    def _hinted(self, one: Demonstration) -> str:
        """Return the prompt of a demonstration with the teacher's hint."""
        prompt = hinted_prompt(self._hint or "", prompt=one.prompt, answer=one.answer, demonstration=one.text)
        if prompt is None:
            raise UserError(f"sft.hinted: the environment gives no answer to {described(one.prompt)!r}. Set it to 0.")
        return prompt

    def _picked(self, step: int) -> list[int]:
        """Draw the task ids of a warm-start step."""
        count, size = len(self._members), self._sft.batch_size
        members = [self._shares.member(index) for index in range(step * size, (step + 1) * size)]
        generator = numpy_generator(self._seed, "sft", step)
        share = 1.0 if self._curriculum is None else self._curriculum.warm_share(step / max(1, self._sft.steps))
        own = [self._drawn(generator, member, members.count(member), share) for member in range(count)]
        return [own[member].pop(0) * count + member for member in members]

    def _drawn(self, generator: np.random.Generator, member: int, requested: int, share: float) -> list[int]:
        """Draw ``requested`` tasks of an environment, of the easiest ``share``; of all if the pool has no such task."""
        pool, result = self._pools[member], list[int]()
        if self._curriculum is not None and share < 1:
            for _ in range(_ROUNDS):
                drawn = generator.integers(pool, size=max(requested, _CANDIDATES)).tolist()
                is_open = self._curriculum.open([task * len(self._members) + member for task in drawn], share)
                result += [task for task, opened in zip(drawn, is_open, strict=True) if opened]
                if len(result) >= requested:
                    return result[:requested]
        return result + generator.integers(pool, size=requested - len(result)).tolist()


def _encoded(one: Demonstration, renderer: PromptRenderer, marks: TokenizerMarks) -> tuple[list[int], list[bool]]:
    """Everything after the prompt, as a rollout would have it, and what of it is imitated."""
    tokens: list[int] = []
    mask: list[bool] = []
    for index, response in enumerate(one.responses):
        response_ids = ended(marks.encode(marks.stripped(response)), renderer.turn_end)
        tokens += response_ids
        mask += [True] * len(response_ids)
        if index < len(one.observations):
            added = renderer.continuation(*one.observations[index], after=response_ids[-1], response=response)
            tokens += added
            mask += [False] * len(added)
    return tokens, mask
