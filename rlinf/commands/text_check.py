"""`rlinf check` for language models: the environment, the tokenizer and the prompts, made as training makes them."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlinf.base.errors import UserError
from rlinf.base.heap import resident_bytes
from rlinf.base.machine import memory_bytes
from rlinf.base.plain_text import folded
from rlinf.base.terminal import printable
from rlinf.commands.data_check import conversation_findings
from rlinf.commands.finding import Caveat
from rlinf.commands.policy_check import (
    local_files,
    policy_findings,
    require_architecture,
    require_teacher_fits,
    require_tokenizer_fits,
)
from rlinf.config import Config
from rlinf.config.derived import conversation_tokens, trains_on_files_alone
from rlinf.data.pictures import described, marked, opened, pictures_of
from rlinf.models.architecture_numbers import most_positions
from rlinf.planning.describe import size_text
from rlinf.train.init_from import carried_tokenizer
from rlinf.train.picture_costs import picture_costs, token_count

if TYPE_CHECKING:
    from rlinf.rollouts.text.env_worker import EnvFacts, TextEnvWorker
    from rlinf.rollouts.text.members import TextMixtureEnv
    from rlinf.rollouts.text.tokens.prompts import PromptRenderer

_SHOWN = 2
_PATIENCE_S = 1.0
_MUCH_MEMORY = 500e6
"""Bytes of an env worker's data that are worth a line."""
_MEASURED = 200
"""Prompts whose length is measured, spread over the dataset."""


@dataclass
class _TextReport:
    """Findings about a text run, and the prompts that the policy will read."""

    findings: list[Caveat] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def refuse(self, error: BaseException, subject: str) -> None:
        """Add the error that training would stop at; if it is not a user's mistake, with the line that raised it."""
        if isinstance(error, UserError):
            self.findings.append(Caveat(True, str(error), subject=subject))
            return
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        self.findings.append(Caveat(True, message, "Training would stop here.", subject))


def examine_text(config: Config) -> _TextReport:
    """Make the environments of training and evaluation, the tokenizer and some prompts. Nothing is written."""
    from rlinf.train.assemble.conversations import conversation_envs

    report = _TextReport()
    if config.sft.steps and config.sft.data is not None:
        _examine_conversations(config, report)
    if trains_on_files_alone(config):
        report.findings += policy_findings(config)
        return report
    worker = conversation_envs(config)
    before = resident_bytes()
    try:
        facts = worker.facts("train")
        if config.evaluation.size:
            worker.facts("eval")
    except (Exception, SystemExit) as error:  # whatever a constructor raises is the finding
        report.refuse(error, "environment")
        facts = None
    report.findings += policy_findings(config)
    if facts is not None:
        _examine_memory(config, resident_bytes() - before, report)
        _examine_prompts(config, worker, facts, report)
    worker.close()
    return report


def _examine_conversations(config: Config, report: _TextReport) -> None:
    """Read `sft.data` and `sft.eval_data` as training does."""
    try:
        findings, lines = conversation_findings(config)
    except (Exception, SystemExit) as error:  # the template's own code may raise anything
        report.refuse(error, "sft.data")
        return
    report.findings += findings
    report.lines += lines


def _examine_memory(config: Config, held: int, report: _TextReport) -> None:
    """Report what the environments of training and evaluation hold, if it is much: each env worker has its own."""
    if held < _MUCH_MEMORY:
        return
    workers, machine = config.env.num_workers, memory_bytes()
    each, together = size_text(held), size_text(held * workers)
    report.lines.append(f"Memory of the data: {each} in each of {workers} env workers, {together} together")
    if config.cluster.address is None and held * workers > machine / 2:
        message = f"{workers} env workers hold {each} of data each, {together} together, of {size_text(machine)} here."
        fitting = max(1, int(machine / 2 / held))
        report.findings.append(Caveat(False, message, f"Set env.num_workers: {fitting}, or env.kwargs.limit."))


def _examine_prompts(config: Config, worker: TextEnvWorker, facts: EnvFacts, report: _TextReport) -> None:
    from rlinf.train.assemble.conversations import conversation_members

    try:
        tasks = _spread(facts)
        prompts = worker.prompts("train", tasks)
        report.lines += _counts(worker, facts)
        report.findings += _fewer(config, worker)
        imitates = config.sft.steps > 0 and config.sft.data is None
        demonstrated = worker.demonstrations("train", tasks[:_SHOWN]) if imitates else []
        tokenizer = _tokenizer(config, worker, facts.num_tasks)
        if tokenizer is None:
            report.lines += ["Prompts (as the environment gives them)", *_listed(tasks, prompts)]
            # A model of the hub most likely has a chat template, with which these sentences are added.
            instructions = facts.instructions.values() if config.data.instruction != "never" else ()
            report.findings += _unmentioned(config, facts, [*prompts, facts.system_prompt or "", *instructions])
            return
        require_tokenizer_fits(config, tokenizer)
        require_architecture(config, tokenizer)
        require_teacher_fits(config, tokenizer)
        members = conversation_members(config, tokenizer, facts)
        renderers = [members[task % len(members)].renderer for task in tasks]
        rendered = [one.opening(prompt) for one, prompt in zip(renderers, prompts, strict=True)]
        report.findings += _long_prompts(config, worker, (tasks, prompts), members)
        report.findings += _marked(tasks, prompts, renderers)
        report.lines += _curriculum(config, worker, tasks)
    except (Exception, SystemExit) as error:  # the environment's or the template's own code may raise anything
        report.refuse(error, "prompts")
        return
    _start(config, worker, report)
    report.findings += [*_unopened(config, renderers[0]), *_shared(config, worker), *_stops(config, renderers[0])]
    report.lines += [f"Data: {label}: {note}" for label, note in facts.notes.items() if note]
    held_out = worker.facts("eval").notes if config.evaluation.size else {}
    report.lines += [
        f"Evaluation data: {label}: {note}"
        for label, note in held_out.items()
        if note and note != facts.notes.get(label)
    ]
    demonstrated_texts = [one.text for one in demonstrated]
    report.lines += _shown(config, renderers[0], tasks, rendered, demonstrated_texts)
    report.lines += _pictures(config, tokenizer, renderers[0], prompts)
    for member, own in zip(members, facts.members or (facts,), strict=True):
        report.lines += _tools(member.renderer, own)
    report.findings += _unmentioned(config, facts, rendered)


def _marked(tasks: Sequence[int], prompts: Sequence[str], renderers: Sequence[PromptRenderer]) -> list[Caveat]:
    """Report system prompts, and prompts of tasks, whose own words have a mark that closes or opens messages."""
    from rlinf.rollouts.text.tokens.tokenizer_marks import TokenizerMarks

    known = {one: TokenizerMarks(one) for one in dict.fromkeys(renderers)}
    meaning = "The policy reads it as a mark between messages: take it out of the words."
    systems = {mark: None for one in known if (mark := known[one].inside(one.system_prompt or ""))}
    findings = [Caveat(False, f"the system prompt has {mark} in its words.", meaning, "prompts") for mark in systems]
    pairs = zip(tasks, prompts, renderers, strict=True)
    marked = [(task, mark) for task, prompt, one in pairs if (mark := known[one].inside(prompt)) is not None]
    if marked:
        task, mark = marked[0]
        message = f"{len(marked)} of {len(prompts)} prompts have {mark} in their words, the first is task {task}."
        findings.append(Caveat(False, message, meaning, "prompts"))
    return findings


def _stops(config: Config, renderer: PromptRenderer) -> list[Caveat]:
    """Report stop texts that no response shows, since they are special tokens, which its text is without."""
    findings = []
    for stop in config.rollout.stop:
        tokens = renderer.encode(stop)
        if stop in renderer.text(tokens):
            continue
        message = f"rollout.stop: {stop!r} is a special token, and responses are searched without those."
        ends = set(tokens) <= renderer.turn_ends
        meaning = "It ends responses anyway: take it out." if ends else "It ends none: name a text that is written out."
        findings.append(Caveat(False, message, meaning, "prompts"))
    return findings


def _unopened(config: Config, renderer: PromptRenderer) -> list[Caveat]:
    """Report a chat template whose prompts do not open the policy's turn."""
    from rlinf.rollouts.text.tokens.chat_template import unwritten_opening

    words = unwritten_opening(renderer.tokenizer, config.data.chat_template_kwargs) if renderer.chat else ""
    if not words:
        return []
    message = (
        f"data.chat_template: the tokenizer's template opens an answer with {words!r}, and no prompt ends with that: "
        "add_generation_prompt changes nothing."
    )
    fix = f"Add {{% if add_generation_prompt %}}{words}{{% endif %}} to it, or each response has to begin so."
    return [Caveat(False, message, fix, "prompts")]


def _shared(config: Config, worker: TextEnvWorker) -> list[Caveat]:
    """Report questions of the training rows that the evaluation has too."""
    shared = (
        len(worker.questions("train") & worker.questions("eval"))
        if config.evaluation.size and config.run.max_steps
        else 0
    )
    if not shared:
        return []
    message = f"the evaluation has {shared:,} questions that are trained on."
    fix = "Set env.kwargs.split: train and evaluation.env_kwargs.split: eval, or evaluation.env_kwargs.path."
    return [Caveat(False, message, fix, "evaluation")]


def _counts(worker: TextEnvWorker, facts: EnvFacts) -> list[str]:
    """Return the line on tasks and on different questions among them, counted for a second at most."""
    if facts.members:
        return []
    texts: set[str] = set()
    began, read = time.monotonic(), 0
    for task in range(facts.num_tasks):
        if time.monotonic() - began > _PATIENCE_S:
            break
        texts.update(map(folded, worker.prompts("train", [task])))
        read += 1
    if len(texts) == read:
        return [f"Tasks: {facts.num_tasks:,}"]
    of = "" if read == facts.num_tasks else f" of the first {read:,}"
    return [f"Tasks: {facts.num_tasks:,} rows, {len(texts):,} different questions{of}"]


def _fewer(config: Config, worker: TextEnvWorker) -> list[Caveat]:
    """Return the remark on an evaluation that has fewer tasks than it requests."""
    size = config.evaluation.size
    if not size:
        return []
    there = worker.facts("eval")
    if there.members or there.num_tasks >= size:
        return []
    message = f"evaluation.size is {size}, and there are {there.num_tasks} tasks for evaluation: those are evaluated."
    return [Caveat(False, message, f"Set evaluation.size: {there.num_tasks}, or give it more tasks.")]


def _curriculum(config: Config, worker: TextEnvWorker, tasks: Sequence[int]) -> list[str]:
    """How hard the tasks are, and which of them a run begins with."""
    curriculum = config.data.curriculum
    if curriculum.by is None:
        return []
    from rlinf.rollouts.text.tasks.curriculum import hardest_of

    scale = sorted(worker.difficulties("train", tasks, curriculum.by))
    easiest = hardest_of(scale, curriculum.start)
    until = f"{curriculum.steps} steps" if curriculum.steps else f"batches with an accuracy of {curriculum.accuracy}"
    measured = f"{scale[0]:g} to {scale[-1]:g} in {len(scale)} tasks, {scale[len(scale) // 2]:g} in the middle"
    return [
        f"Curriculum by {curriculum.by}: {measured}",
        f"  begins with tasks up to {easiest:g}, and opens the others over {until}",
    ]


def _spread(facts: EnvFacts) -> list[int]:
    """Task ids evenly over each dataset, whose prompts may get longer towards its end."""
    parts = facts.members or (facts,)
    most = max(part.num_tasks for part in parts)
    measured = max(1, _MEASURED // len(parts))
    own = range(0, most, max(1, most // measured))[:measured]
    return [task * len(parts) + number for task in own for number in range(len(parts))]


def _tools(renderer: PromptRenderer, facts: EnvFacts) -> list[str]:
    """List the tools by name, and how the prompt presents them and how the policy writes calls."""
    if not facts.tools:
        return []
    names = ", ".join(tool["function"]["name"] for tool in facts.tools)
    return [f"Tools: {names}", f"  {renderer.about_tools()}"]


def _start(config: Config, worker: TextEnvWorker, report: _TextReport) -> None:
    """Start conversations, which a task without an answer to grade responses by refuses."""
    requested = {"eval": config.evaluation.size > 0, "train": config.run.max_steps > 0}
    for split in (split for split, is_wanted in requested.items() if is_wanted):
        try:
            worker.reset(split, _spread(worker.facts(split))[:_SHOWN])
        except (Exception, SystemExit) as error:  # the environment's own code may raise anything
            if split == "train" and config.sft.steps and not requested["eval"]:  # a file for `rlinf sft`
                fix = "`rlinf train` would stop after the warm start; `rlinf sft` does that alone."
                report.findings.append(Caveat(False, str(error), fix, "environment"))
            else:
                report.refuse(error, "environment")
            return


def _tokenizer(config: Config, worker: TextEnvWorker, num_tasks: int) -> Any:
    """Return the tokenizer of the run; None if it has to be downloaded first."""
    carried = carried_tokenizer(config)
    path = config.policy.tokenizer.path or config.policy.path if carried is None else str(carried)
    if path is not None:
        from rlinf.models.loading import load_tokenizer

        return load_tokenizer(path) if local_files(path) is not None else None
    from rlinf.models.tokenizer import train_tokenizer
    from rlinf.train.assemble.tokenizer_texts import tokenizer_texts

    requested = config.policy.tokenizer
    texts = tokenizer_texts(config, worker, num_tasks)
    return train_tokenizer(texts, vocab_size=requested.vocab_size, split_digits=requested.split_digits)


def _long_prompts(
    config: Config,
    worker: TextEnvWorker,
    training: tuple[Sequence[int], Sequence[str]],
    members: Sequence[TextMixtureEnv],
) -> list[Caveat]:
    """Find prompts of training and of evaluation that do not fit ``data.max_prompt_length``.

    ``training``: tasks, and their prompts.
    """
    limit, positions = config.data.max_prompt_length, most_positions(config.policy)
    measured = {"training": training} if config.run.max_steps else {}
    if config.evaluation.size:
        held_out = _spread(worker.facts("eval"))[: config.evaluation.size]
        measured["evaluation"] = (held_out, worker.prompts("eval", held_out))
    findings = []
    for name, (tasks, prompts) in measured.items():
        pairs = zip(tasks, prompts, strict=True)
        lengths = [len(members[task % len(members)].renderer.prompt(prompt)) for task, prompt in pairs]
        long = [length for length in lengths if length > limit]
        if not long:
            continue
        everything, most = len(long) == len(lengths), max(long)
        meaning = "Training would have no prompt left" if everything else "They are dropped, never cut"
        if name == "evaluation":
            meaning = "Their responses have less room, or none, and count as wrong then"
        fix = f"set data.max_prompt_length: {most}"
        if positions is not None and most + conversation_tokens(config) > positions:
            fix = f"the model sees at most {positions} tokens, so shorten them, or the responses"
        message = f"{len(long)} of {len(lengths)} {name} prompts are longer than data.max_prompt_length {limit}"
        serious = everything and name == "training"
        findings.append(Caveat(serious, f"{message} (up to {most}).", f"{meaning}: {fix}.", "prompts"))
    return findings


def _shown(
    config: Config, renderer: PromptRenderer, tasks: Sequence[int], rendered: Sequence[str], responses: Sequence[str]
) -> list[str]:
    """Prompts as the policy reads them, and what the warm start demonstrates."""
    from rlinf.rollouts.text.tokens.chat_template import text_start

    how = "with the tokenizer's chat template" if renderer.chat else "plain text"
    sizes = [f", {count} token{'s' * (count != 1)}" for count in (len(renderer.begun(text)) for text in rendered)]
    first = "" if renderer.chat else renderer.tokenizer.decode(list(text_start(renderer.tokenizer)))
    how += f", behind the tokenizer's own {first}" if first else ""
    lines = [f"Prompts ({how})", *_listed(tasks, rendered, sizes)]
    if renderer.opened_thoughts:
        mark = renderer.opened_thoughts.strip()
        lines.append(f"  Prompts open the thoughts: environments read each response behind their {mark}.")
    if config.sft.steps and config.sft.data is None:
        lines += ["Warm start", *_listed(tasks, responses, [": demonstrated response"] * len(responses))]
        lines.append(f"  {config.sft.steps} steps of {config.sft.batch_size} demonstrated responses at learning rate")
        lines[-1] += f" {config.sft.lr:g}, before the first step; `rlinf sft` does only that."
    return lines


def _pictures(config: Config, tokenizer: Any, renderer: PromptRenderer, prompts: Sequence[str]) -> list[str]:
    """How many tokens pictures take, by their sizes, what bounds them, and what a lower bound saves."""
    uris = [uri for prompt in prompts for uri in pictures_of(prompt)]
    if not uris:
        return []
    sizes: dict[str, int] = {}
    for uri in uris:
        sizes.setdefault(described(marked(uri))[1:-1], sum(token < 0 for token in renderer.encode(marked(uri))))
    largest = sorted(sizes.items(), key=lambda one: -one[1])[:_SHOWN]
    lines = [f"Pictures ({len(uris) / len(prompts):.3g} in a prompt)"]
    lines += [f"  {size}: {token_count(count)}" for size, count in largest]
    largest_uri = max(uris, key=lambda uri: math.prod(opened(uri).size))
    lines += [f"  {line}" for line in picture_costs(config, tokenizer, largest_uri)]
    limit = config.policy.vision.max_pixels
    bound = "the image processor's own limit" if limit is None else f"policy.vision.max_pixels {limit:,}"
    return [*lines, f"  bounded by {bound}; they count in data.max_prompt_length and in micro-batches"]


def _listed(tasks: Sequence[int], texts: Sequence[str], remarks: Sequence[str] = ("",) * _SHOWN) -> list[str]:
    """List the texts of the first of ``tasks``, indented; characters that a terminal would act on become escapes."""
    lines = []
    for task, text, remark in zip(tasks[:_SHOWN], texts, remarks, strict=False):
        lines.append(f"  task {task}{remark}")
        lines += [f"    | {line}" for line in printable(described(text)).split("\n")]
    return lines


def _unmentioned(config: Config, facts: EnvFacts, rendered: Sequence[str]) -> list[Caveat]:
    """Find marks that a rewarded response needs and that no prompt mentions."""
    if config.sft.steps:
        return []  # the warm start shows them
    missing = [mark for mark in facts.response_marks if not any(mark in prompt for prompt in rendered)]
    if not missing:
        return []
    message = f"responses need {' and '.join(missing)} to earn their reward, and no prompt mentions it."
    fix = (
        "Request it in env.kwargs.prompt_template or data.system_prompt, or show it by a warm start (sft.steps); "
        f"data.instruction: always adds the environment's own sentence (now {config.data.instruction})."
    )
    return [Caveat(False, message, fix, "prompts")]
