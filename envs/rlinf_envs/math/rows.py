"""From dataset rows to tasks: field names, the layouts of published datasets, and what makes a row broken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlinf_envs.datasets import Record
from rlinf_envs.errors import DatasetError
from rlinf_envs.extraction import boxes, last_boxed, last_hashes, without_thoughts
from rlinf_envs.math.final_answer import boxed_answer
from rlinf_envs.spaces import MAX_CHARS
from rlinf_envs.tasks import Task

QUESTION_FIELDS = ("question", "problem", "prompt", "query", "input")
ANSWER_FIELDS = ("answer", "final_answer", "ground_truth", "target", "expected_answer", "solution")
SOLUTION_FIELDS = ("solution", "rationale", "reasoning")
RESPONSE_FIELDS = ("response", "completion", "output", "messages")
"""What whole responses are usually called: never read unless named, and suggested where there is no answer."""
DOMAIN_FIELDS = ("domain", "type", "subject", "data_source", "category")

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_SHOWN = 5
_NOT_FINITE = frozenset({"nan", "inf"})
"""How Python writes the JSON numbers NaN, Infinity and 1e999."""


class _BrokenRow(ValueError):
    """Why a row is no task."""


@dataclass(frozen=True)
class Fields:
    """Field names to read; None picks the first known name that a row has, in any case. Dots reach into objects."""

    question: str | None = None
    answer: str | None = None
    domain: str | None = None
    response: str | None = None
    """Whole responses to imitate: text, or a list of chat messages that holds the question too. None: there are none,
    and every row needs an answer."""


@dataclass(frozen=True)
class Rows:
    """The usable rows of a dataset, and how many were left out."""

    tasks: list[Task]
    complaints: list[str]
    """Rows that were left out: "file:line: what is wrong"."""
    doubts: list[str]
    """Rows that were taken and are hardly meant so: "file:line: what is odd"."""
    conflicts: list[str]
    """Rows that were taken, whose question an earlier row has with another answer."""


def tasks_of(
    records: Iterable[Record], fields: Fields, *, default_domain: str, on_bad_row: Literal["error", "skip"]
) -> Rows:
    """The tasks of all sound rows, and what is wrong with the others.

    Raises:
        DatasetError: there is a broken row and ``on_bad_row`` is "error" (the first few are listed).
    """
    tasks: list[Task] = []
    complaints: list[str] = []
    doubts: list[str] = []
    conflicts: list[str] = []
    answers: dict[str, tuple[str, str]] = {}
    for record in records:
        try:
            task = _task(record, fields, default_domain)
            tasks.append(task)
            before, place = answers.setdefault(task.question, (task.answer, record.place))
            if before != task.answer:
                conflicts.append(f"{record.place}: the question of {place} with another answer: {task.answer!r:.40}")
            elif (boxes_left := _other_boxes(task)) is not None:
                doubts.append(f"{record.place}: {boxes_left}")
            elif task.answer.lstrip("-") in _NOT_FINITE:
                doubts.append(f"{record.place}: the answer is the number {task.answer}")
        except _BrokenRow as error:
            complaints.append(f"{record.place}: {error}")
            if on_bad_row == "error" and len(complaints) > _SHOWN:
                break
    if complaints and on_bad_row == "error":
        listed = "\n".join(complaints[:_SHOWN]) + ("\n..." if len(complaints) > _SHOWN else "")
        raise DatasetError(f"{listed}\n(env.kwargs.on_bad_row: skip leaves such rows out and counts them)")
    return Rows(tasks, complaints, doubts, conflicts)


def merged(tasks: Iterable[Task]) -> list[Task]:
    """Each question once, where it comes first; answers of its later rows are right too.

    Published benchmarks repeat a row once for each response to it, or have a row for each accepted answer.
    """
    found: dict[str, Task] = {}
    for task in tasks:
        first = found.setdefault(task.question, task)
        if task.answer and task.answer not in (first.answer, *first.other_answers):
            found[task.question] = replace(first, other_answers=(*first.other_answers, task.answer))
    return list(found.values())


def _task(record: Record, fields: Fields, default_domain: str) -> Task:
    if record.row is None:
        raise _BrokenRow(record.problem)
    if fields.response is not None:
        return _imitated(record.row, fields, fields.response, default_domain)
    question = _text(_field(record.row, "question", fields.question, QUESTION_FIELDS), "question")
    answer_name, raw = _field(record.row, "answer", fields.answer, ANSWER_FIELDS)
    written = _text((answer_name, raw), "answer")
    answer = _final(written, answer_name)
    solution = written if written != answer else None
    if solution is None:
        solution = next((record.row[name] for name in SOLUTION_FIELDS if _worked(record.row.get(name), answer)), None)
    if solution is not None:
        _check_text(solution, "solution")
    return Task(
        question=question,
        answer=answer,
        domain=_domain(record.row, fields.domain) or default_domain,
        solution=_CALCULATOR.sub("", solution).strip() if solution else None,
        row=record.row,
    )


def _imitated(row: Mapping[str, Any], fields: Fields, name: str, default_domain: str) -> Task:
    """The task of a row with a whole response; an answer is read too where the row has one."""
    _, found = _field(row, "response", name, ())
    if isinstance(found, list):
        question, response = _exchange(found, name)
    else:
        question, response = _text(_field(row, "question", fields.question, QUESTION_FIELDS), "question"), found
    if not isinstance(response, str) or not response.strip():
        raise _BrokenRow(f"the response field {name!r} must be text that is not blank")
    return Task(
        question=question,
        answer=_answer_if_known(row, fields),
        domain=_domain(row, fields.domain) or default_domain,
        row=row,
        response=response,
    )


def _answer_if_known(row: Mapping[str, Any], fields: Fields) -> str:
    """The final answer; empty where the row has none, unless its field is named."""
    try:
        name, raw = _field(row, "answer", fields.answer, ANSWER_FIELDS)
        return _final(_text((name, raw), "answer"), name)
    except _BrokenRow:
        if fields.answer is not None:
            raise
        return ""


def _exchange(messages: Sequence[Any], name: str) -> tuple[str, Any]:
    """(what the user says, what the assistant replies) of chat messages, which must be one of each."""
    roles = [message.get("role") if isinstance(message, Mapping) else None for message in messages]
    if "system" in roles:
        raise _BrokenRow(f"{name} has a system message: take it out, and set env.kwargs.system_prompt to it")
    if roles != ["user", "assistant"]:
        raise _BrokenRow(f"{name} must be one message of the user and one of the assistant, got the roles {roles}")
    question = _text((f"{name}.0.content", messages[0].get("content")), "question")
    return question, messages[1].get("content")


def _final(written: str, name: str) -> str:
    """The answer proper: GSM8K writes it behind ``####``, MATH into the box, or boxes in a row, of its solution."""
    said = without_thoughts(written)
    found = last_hashes(said)
    if found is None:
        found = boxed_answer(said)
    if found is None and name.rsplit(".", 1)[-1] == "solution":
        raise _BrokenRow(f"the {name} has neither a \\boxed{{...}} nor a #### line, so there is no final answer")
    found = (written if found is None else found).strip()
    if not found:
        raise _BrokenRow(f"the final answer in {name} is blank")
    return found


def _other_boxes(task: Task) -> str | None:
    """Describes a solution whose last box is the answer while other boxes hold something else."""
    if task.solution is None or task.answer != last_boxed(task.solution):
        return None
    contents = dict.fromkeys(box.content.strip() for box in boxes(task.solution))
    if len(contents) < 2:
        return None
    return f"the solution has boxes with different contents, and the last one is the answer: {task.answer!r:.40}"


def _worked(value: Any, answer: str) -> bool:
    return isinstance(value, str) and value.strip() != answer and bool(value.strip())


def _field(row: Mapping[str, Any], role: str, name: str | None, known: Sequence[str]) -> tuple[str, Any]:
    empty: str | None = None
    for candidate in (name,) if name is not None else known:
        value: Any = row
        if name is None and candidate not in row:
            candidate = next((own for own in row if str(own).lower() == candidate), candidate)
        for part in [candidate] if candidate in row else candidate.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return candidate, value
        if candidate in row:
            empty = candidate
    if empty is not None:
        raise _BrokenRow(f"the {role} field {empty!r} is null")
    wanted = repr(name) if name is not None else "one of " + ", ".join(known)
    own = next((other for other in RESPONSE_FIELDS if role == "answer" and other in row), None)
    hint = f"; to imitate {own} as it is, set env.kwargs.response_field: {own}" if own is not None else ""
    if name is None and own is None and not any(candidate in row for candidate in (*QUESTION_FIELDS, *ANSWER_FIELDS)):
        hint = f"; env.kwargs.{role}_field names another"
    raise _BrokenRow(f"no {role} field ({wanted}); the row has {', '.join(map(str, row)) or 'no fields'}{hint}")


def _text(found: tuple[str, Any], role: str) -> str:
    name, value = found
    if role == "answer" and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _BrokenRow(f"the {role} field {name!r} must be text, got {type(value).__name__}")
    if not value.strip():
        raise _BrokenRow(f"the {role} field {name!r} is blank")
    _check_text(value, f"{role} field {name!r}")
    return value.strip()


def _check_text(text: str, where: str) -> None:
    if len(text) > MAX_CHARS:
        raise _BrokenRow(f"the {where} has {len(text):,} characters, and {MAX_CHARS:,} are the most")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(text[error.start]):04x}"
        raise _BrokenRow(f"the {where} has half a character ({code}, a lone surrogate) at {error.start}") from error


def _domain(row: Mapping[str, Any], name: str | None) -> str | None:
    for candidate in (name,) if name is not None else DOMAIN_FIELDS:
        value = row.get(candidate)
        if isinstance(value, str) and value:
            return value
    return None
