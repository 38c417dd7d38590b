"""From dataset rows to tasks: field names, the layouts of published datasets, and what makes a row broken."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from rlinf.base.json_text import listed_messages, parse_json
from rlinf.base.published_end_marks import without_end_marks
from rlinf.data.picture_fields import field_pictures, with_pictures
from rlinf.data.pictures import PictureError, replaced
from rlinf_envs.chat_rows import part_of, system_and_question
from rlinf_envs.datasets import UNREAD, Record, counted
from rlinf_envs.errors import DatasetError
from rlinf_envs.math.final_answer import reference_answer, solved_answer
from rlinf_envs.math.references import doubts_about
from rlinf_envs.spaces import MAX_CHARS
from rlinf_envs.splits import question_key
from rlinf_envs.tasks import Task

QUESTION_FIELDS = ("question", "problem", "prompt", "query", "input", "0.value", "messages", "conversations")
"""The last three are Open-Reasoner-Zero's, whose rows are lists of messages, Tulu's and ShareGPT's."""
MATERIAL_FIELDS = ("body", "context", "passage")
"""Text that a question is about, in a column of its own: it stands before the question."""
ANSWER_FIELDS = (
    "answer",
    "final_answer",
    "ground_truth",
    "reward_model.ground_truth",
    "verification_info.ground_truth",
    "target",
    "expected_answer",
    "reference_answer",
    "1.ground_truth.value",
    "solution",
)
SOLUTION_FIELDS = ("solution", "rationale", "reasoning")
RESPONSE_FIELDS = ("response", "completion", "output", "messages")
"""What whole responses are usually called: never read unless named, and suggested where there is no answer."""
DOMAIN_FIELDS = ("domain", "type", "subject", "data_source", "category")

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_NO_VALUE = re.compile(r"[^\W\d_]{2}|[=\n]")
_LONGEST_VALUE = 100
_SHOWN = 5
_NOTHING: tuple[Any, ...] = (None, "", [], {})


class _BrokenRow(ValueError):
    """Why a row is no task."""


@dataclass(frozen=True)
class Fields:
    """Field names to read; None picks the first known name that a row has, in any case.

    Dots reach into objects and, with numbers, into lists: ``reward_model.ground_truth``, ``prompt.0.content``.
    """

    question: str | None = None
    answer: str | None = None
    domain: str | None = None
    response: str | None = None
    """Whole responses to imitate: text, or a list of chat messages that holds the question too. None: there are none,
    and every row needs an answer."""
    image: str | None = None
    """Pictures of the question: they go where it has ``<image>``, or in front of it. None: none are read."""


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
    unread: dict[str, int]
    """Column that holds something and was not read -> in how many rows."""
    reasons: dict[str, int]
    """Why rows were left out -> how many."""
    system: str | None
    """The system message that the questions of all rows have."""


def tasks_of(
    records: Iterable[Record], fields: Fields, *, default_domain: str, on_bad_row: Literal["error", "skip"]
) -> Rows:
    """Return the tasks of all sound rows, and what is wrong with the others.

    Raises:
        DatasetError: there is a broken row and ``on_bad_row`` is "error" (the first few are listed).
    """
    result = _Found()
    for record in records:
        try:
            result.add(record, fields, default_domain)
        except _BrokenRow as error:
            result.complaints.append(f"{record.location}: {error}")
            result.reasons[str(error)] += 1
            if on_bad_row == "error" and len(result.complaints) > _SHOWN:
                break
    if result.complaints and on_bad_row == "error":
        listed = "\n".join(result.complaints[:_SHOWN]) + ("\n..." if len(result.complaints) > _SHOWN else "")
        raise DatasetError(f"{listed}\n(env.kwargs.on_bad_row: skip leaves such rows out and counts them)")
    return result.rows()


class _Found:
    """Tasks and remarks so far."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.complaints: list[str] = []
        self.reasons: Counter[str] = Counter()
        self._doubts: list[str] = []
        self._conflicts: list[str] = []
        self._unread: Counter[str] = Counter()
        self._answers: dict[str, tuple[str, str]] = {}
        self._systems: dict[str | None, str] = {}

    def add(self, record: Record, fields: Fields, default_domain: str) -> None:
        """Read a row. Raise _BrokenRow if it is no task."""
        read = _Read(record, fields)
        task = read.task(default_domain)
        self.tasks.append(task)
        self._systems.setdefault(read.system, record.location)
        self._unread.update(read.unread())
        before, location = self._answers.setdefault(question_key(task.question), (task.answer, record.location))
        if before != task.answer:
            self._conflicts.append(
                f"{record.location}: the question of {location} with another answer: {task.answer!r:.40}"
            )
        else:
            self._doubts += [f"{record.location}: {doubt}" for doubt in doubts_about(task, read.written)]

    def rows(self) -> Rows:
        """Return the rows. Raise DatasetError if they have different system messages."""
        if len(self._systems) > 1:
            first, second = list(self._systems.values())[:2]
            raise DatasetError(
                f"{second}: the row's system message is not that of {first}, and a run has one system prompt: set "
                "env.kwargs.question_field to the user's message alone (prompt.1.content for a column prompt), "
                "and env.kwargs.system_prompt"
            )
        system = next(iter(self._systems), None)
        return Rows(
            self.tasks,
            self.complaints,
            self._doubts,
            self._conflicts,
            dict(self._unread),
            dict(self.reasons),
            system,
        )


def notes_on(rows: Rows) -> dict[str, int | str]:
    """Remarks on the rows: label -> a number or a sentence."""
    different = len({question_key(task.question) for task in rows.tasks})
    notes: dict[str, int | str] = {}
    if different < len(rows.tasks):
        notes["rows with a question that another row has too"] = (
            f"{len(rows.tasks):,} rows have {different:,} different question{'' if different == 1 else 's'} "
            "(env.kwargs.repeated_questions: merge keeps one of each)"
        )
    if rows.unread:
        notes[UNREAD] = counted(rows.unread, len(rows.tasks))
    if rows.reasons:
        notes["rows left out"] = counted(rows.reasons, 0)
    return notes


def merged(tasks: Iterable[Task]) -> list[Task]:
    """Return each question (:func:`rlinf_envs.splits.question_key`) once, at its first position.

    Answers of its later rows are right too.

    Published benchmarks repeat a row once for each response to it, or have a row for each accepted answer.
    """
    results: dict[str, Task] = {}
    for task in tasks:
        key = question_key(task.question)
        first = results.setdefault(key, task)
        if task.answer and task.answer not in (first.answer, *first.other_answers):
            results[key] = replace(first, other_answers=(*first.other_answers, task.answer))
    return list(results.values())


class _Read:
    """The parts of one row, and which of its columns they are from."""

    def __init__(self, record: Record, fields: Fields) -> None:
        """Raise _BrokenRow if there is no row."""
        if record.row is None:
            raise _BrokenRow(record.problem)
        self._row, self._fields, self._folder, self._repeated = record.row, fields, record.folder, record.repeated
        self._columns: set[str] = set()
        self.system: str | None = None
        self.written = ""
        """The answer as the row has it, which may be a solution."""

    def task(self, default_domain: str) -> Task:
        """Return the row as a task. Raise _BrokenRow if it is none."""
        fields, row = self._fields, self._row
        domain = _domain(row, fields.domain, self._columns) or default_domain
        if fields.response is not None:
            return self._imitated(fields.response, domain)
        question = self.question()
        name, raw = self._field("answer", fields.answer, ANSWER_FIELDS)
        self.written = _text((name, _single(name, raw)), "answer")
        answer = _final(self.written, name)
        solution = self.written if self.written != answer else None
        if solution is None:
            own = next((name for name in SOLUTION_FIELDS if _worked(row.get(name), answer)), None)
            self._columns |= {own} if own is not None else set()
            solution = row[own] if own is not None else None
        if solution is not None:
            _check_text(solution, "solution")
        return Task(
            question=question,
            answer=answer,
            domain=domain,
            solution=_CALCULATOR.sub("", without_end_marks(solution)).strip() if solution else None,
            row=row,
        )

    def question(self) -> str:
        """Return the question, behind the text that it is about if that has a column of its own."""
        name, raw = self._field("question", self._fields.question, QUESTION_FIELDS)
        if isinstance(raw, list):
            self.system, question = self._messages(raw, name)
        else:
            question = _text((name, raw), "question")
        for own in () if self._fields.question is not None else map(str, self._row):
            material = self._row[own]
            if own.lower() in MATERIAL_FIELDS and isinstance(material, str) and material.strip():
                self._columns.add(own)
                _check_text(material, own)
                question = question if material.strip() in question else f"{material.strip()}\n{question}"
        return question if self._fields.image is None else self._with_pictures(question, self._fields.image)

    def _with_pictures(self, question: str, name: str) -> str:
        _, value = self._field("image", name, ())
        try:
            return with_pictures(question, field_pictures(value, self._folder))
        except PictureError as error:
            raise _BrokenRow(f"the image field {name!r}: {error}") from error

    def _messages(self, raw: list[Any], name: str) -> tuple[str | None, str]:
        try:
            system, question = system_and_question(raw, name, self._folder)
        except ValueError as error:
            raise _BrokenRow(f"{error}{_to_imitate(name) if name in RESPONSE_FIELDS else ''}") from error
        return system, _text((name, question), "question")

    def unread(self) -> list[str]:
        """Columns that hold something and were not read."""
        own = [str(name) for name, value in self._row.items() if name not in self._columns and value not in _NOTHING]
        return [*own, *self._repeated]

    def _field(self, role: str, name: str | None, known: Sequence[str]) -> tuple[str, Any]:
        result = _field(self._row, role, name, known)
        self._columns.add(result[0] if result[0] in self._row else result[0].partition(".")[0])
        try:
            return result[0], listed_messages(result[1])
        except ValueError as error:
            raise _BrokenRow(f"the {role} field {result[0]!r} holds {error}") from error

    def _imitated(self, name: str, domain: str) -> Task:
        """Return the task of a row with a whole response; an answer is read too if the row has one."""
        _, result = self._field("response", name, ())
        if isinstance(result, list):
            question, response = _exchange(result, name)
        else:
            question, response = self.question(), result
        if not isinstance(response, str) or not response.strip():
            raise _BrokenRow(f"the response field {name!r} must be text that is not blank")
        response = without_end_marks(response)  # training adds the policy's own
        return Task(question=question, answer=self._answer_if_known(), domain=domain, row=self._row, response=response)

    def _answer_if_known(self) -> str:
        """Return the final answer; empty if the row has none, unless its field is named."""
        try:
            name, raw = self._field("answer", self._fields.answer, ANSWER_FIELDS)
            return _final(_text((name, _single(name, raw)), "answer"), name)
        except _BrokenRow:
            if self._fields.answer is not None:
                raise
            return ""


def question_of(record: Record, fields: Fields) -> str | None:
    """Return the question of a row; None if it has none."""
    try:
        return _Read(record, fields).question()
    except _BrokenRow:
        return None


def _single(name: str, value: Any) -> Any:
    """Return the entry of a list that has one, also if a list of texts is written as text; Decimal as text."""
    if isinstance(value, str) and value.lstrip().startswith(('["', "['")):
        try:
            parsed = parse_json(value) if value.lstrip()[1] == '"' else ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            return value
        value = parsed if isinstance(parsed, list) and all(isinstance(one, str) for one in parsed) else value
    if isinstance(value, Decimal):
        return format(value, "f")
    if not isinstance(value, list):
        return value
    if len(value) != 1:
        raise _BrokenRow(
            f"the answer field {name!r} has {len(value)} entries, and one is read: name it ({name}.0), or join them "
            "into one text where the answer is all of them"
        )
    return _single(name, value[0])


def _exchange(messages: Sequence[Any], name: str) -> tuple[str, Any]:
    """Return (the user's message, the assistant's reply) of chat messages, which must be one of each."""
    roles = [message.get("role") if isinstance(message, Mapping) else None for message in messages]
    if "system" in roles:
        raise _BrokenRow(f"{name} has a system message: take it out, and set env.kwargs.system_prompt to it")
    if roles != ["user", "assistant"]:
        raise _BrokenRow(f"{name} must be one message of the user and one of the assistant, got the roles {roles}")
    question = _text((f"{name}.0.content", messages[0].get("content")), "question")
    return question, messages[1].get("content")


def _final(written: str, name: str) -> str:
    """Extract the answer: GSM8K writes it behind ``####``, MATH into the box, or boxes in a row, of its solution."""
    solved = solved_answer(written)
    if name.rsplit(".", 1)[-1] == "solution" and solved is None and not _is_value(written):
        raise _BrokenRow(f"the {name} has neither a \\boxed{{...}} nor a #### line, so there is no final answer")
    result = reference_answer(written) if solved is None else solved
    if not result.strip():
        raise _BrokenRow(f"the final answer in {name} is blank")
    return result


def _is_value(solution: str) -> bool:
    """Whether a solution is a bare answer, as in sets for TRL: one line of numbers and symbols, without words."""
    text = _COMMAND.sub("", solution.strip())
    return 0 < len(text) <= _LONGEST_VALUE and not _NO_VALUE.search(text)


def _worked(value: Any, answer: str) -> bool:
    return isinstance(value, str) and value.strip() != answer and bool(value.strip())


def _field(row: Mapping[str, Any], role: str, name: str | None, known: Sequence[str]) -> tuple[str, Any]:
    empty: str | None = None
    for candidate in (name,) if name is not None else known:
        value: Any = row
        if name is None and candidate not in row:
            candidate = next((own for own in row if str(own).lower() == candidate), candidate)
        for part in [candidate] if candidate in row else candidate.split("."):
            value = part_of(value, part)
        if value is not None:
            return candidate, value
        if candidate in row:
            empty = candidate
    if empty is not None:
        raise _BrokenRow(f"the {role} field {empty!r} is null")
    requested = repr(name) if name is not None else "one of " + ", ".join(known)
    own = next((other for other in RESPONSE_FIELDS if role == "answer" and other in row), None)
    hint = _to_imitate(own) if own is not None else ""
    if name is None and own is None and row:
        hint = f"; env.kwargs.{role}_field names another"
    raise _BrokenRow(f"no {role} field ({requested}); the row has {', '.join(map(str, row)) or 'no fields'}{hint}")


def _to_imitate(name: str) -> str:
    return f"; to imitate {name} as it is, set env.kwargs.response_field: {name}"


def _text(result: tuple[str, Any], role: str) -> str:
    name, value = result
    if role == "answer" and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        other = "; rlinf/Prompts-v0 takes rows for a reward of your own" if isinstance(value, Mapping) else ""
        kind = f"{type(value).__name__}{_inner(name, value)}{other if role == 'answer' else ''}"
        raise _BrokenRow(f"the {role} field {name!r} must be text, got {kind}")
    if role == "answer":
        value = without_end_marks(value)
    if not value.strip():
        raise _BrokenRow(f"the {role} field {name!r} is blank")
    _check_text(value, f"{role} field {name!r}")
    return value.strip()


def _inner(name: str, value: Any) -> str:
    """Names a way into an object or a list."""
    if isinstance(value, bool):
        return " (write what a response is to answer, such as yes or no)"
    if isinstance(value, Mapping) and value:
        return f" (dots reach into it: {name}.{next(iter(value))})"
    return f" (numbers reach into it: {name}.0)" if isinstance(value, list) and value else ""


def _check_text(text: str, where: str) -> None:
    if len(replaced(text, "")) > MAX_CHARS:
        raise _BrokenRow(f"the {where} has {len(text):,} characters, and {MAX_CHARS:,} are the most")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(text[error.start]):04x}"
        raise _BrokenRow(f"the {where} has half a character ({code}, a lone surrogate) at {error.start}") from error


def _domain(row: Mapping[str, Any], name: str | None, read: set[str]) -> str | None:
    for candidate in (name,) if name is not None else DOMAIN_FIELDS:
        value = row.get(candidate)
        if isinstance(value, str) and value:
            read.add(candidate)
            return value
    return None
