"""Whether an answer equals the reference: by structure as far as structure decides, by algebra for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from rlinf_envs.math.chains import Equal, chain, holds
from rlinf_envs.math.matrices import matrix, vector
from rlinf_envs.math.named_values import alternatives, as_tuple, roots
from rlinf_envs.math.notation import tidy
from rlinf_envs.math.quantity import Quantity, quantity, same_quantity, split_unit
from rlinf_envs.math.relations import assignment, has_inequality, intervals, without_member
from rlinf_envs.math.structure import (
    Container,
    bare_list,
    container,
    given_choice,
    given_choices,
    in_base,
    wanted_choice,
    wanted_choices,
    without_choice,
)
from rlinf_envs.math.symbolic import Unreadable, is_expression
from rlinf_envs.math.words import meaning, number_word, ordinal, same_time

Item = TypeVar("Item")
MAX_CHARS = 1000
"""Longer answers count only where they read like the reference: everything below is bounded by this length."""
_MAX_DEPTH = 4
_UNEVALUATED = re.compile(r"\\(?:i{0,2}int|oint|sum|prod|lim)(?![A-Za-z])")
"""Operators that state a problem: "\\int_0^1 2x dx" is no answer to the question for its value."""
_RADIANS = re.compile(r"\s*(?:rad|radians?)$")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def same(given: str, reference: str, equal: Equal) -> bool:
    """Return whether ``given`` answers as ``reference`` does; ``equal`` compares expressions that are no plain numbers.

    Raises:
        Unreadable: ``given`` as a whole cannot be read as mathematics though ``reference`` can.
    """
    if max(len(given), len(reference)) > MAX_CHARS:
        return bool(given.strip()) and _squeezed(given) == _squeezed(reference)
    return _same(tidy(given), tidy(reference), equal, _MAX_DEPTH)


def _same(given: str, requested: str, equal: Equal, depth: int) -> bool:
    if not given or not requested:
        return False
    if _squeezed(given) == _squeezed(requested):
        return True
    if depth == 0:
        return False
    decided = _same_in_words(given, requested)
    if decided is not None:
        return decided
    given, requested = meaning(given) or given, meaning(requested) or requested
    decided = _same_values(given, requested, equal, depth)
    if decided is not None:
        return decided
    members = chain(given)
    if members is not None and (len(members) > 2 or chain(requested) is None):
        # A reference that is an equation is met by one: "y - 2x = 3" is no claim that y - 2x has the value 3.
        if not holds(members, equal):
            return False
        given = members[-1] if chain(requested) is None else given
    if _UNEVALUATED.search(given) and not _UNEVALUATED.search(requested):
        return False
    given, requested = without_member(without_choice(given)), without_member(without_choice(requested))
    base, wanted_base = in_base(given), in_base(requested)
    if wanted_base is not None:
        return base == wanted_base or (base is None and _of_that_base(given.strip().upper(), *wanted_base))
    if base is not None:
        return False
    return _same_by_kind(given, requested, equal, depth)


def _of_that_base(given: str, digits: str, base: str) -> bool:
    """Whether digits without their base can hardly be decimal: FF for FF_16, 1010 for 1010_2; 2516 for 2516_8 can."""
    return given == digits and (base == "2" or not digits.isdigit())


def _same_by_kind(given: str, requested: str, equal: Equal, depth: int) -> bool:
    first, second = quantity(given), quantity(requested)
    if first is not None and second is not None:
        return same_quantity(first, second)
    angle = _same_angle(given, first, requested, second, equal)
    if angle is not None:
        return angle
    given, requested = _plain(given, first), _plain(requested, second)
    decided = _same_assignment(given, requested, equal, depth)
    if decided is not None:
        return decided
    decided = _same_structure(given, requested, equal, depth)
    if decided is not None:
        return decided
    return _same_expression(given, requested, equal)


def _same_in_words(given: str, requested: str) -> bool | None:
    """Compare choices, times and ordinals; None if the reference is none of them."""
    letter = wanted_choice(requested)
    if letter is not None:
        return given_choice(given) == letter
    if wanted_choice(given) is not None and without_choice(requested) != requested:
        return given_choice(given) == given_choice(requested)  # "B" for "B. 12"
    letters = wanted_choices(requested)
    if letters is not None and given_choices(given) == letters:
        return True
    if letters is not None and not requested.isalpha():
        return False  # while AB is a segment or a product too, which algebra compares
    if ordinal(requested) != requested or ordinal(given) != given:
        return ordinal(given).lower() == ordinal(requested).lower()
    value = number_word(requested)  # in a sentence of the response a word may count anything
    if value is not None and given.strip() == str(value):
        return True
    return same_time(given, requested)


def _same_angle(
    given: str, first: Quantity | None, requested: str, second: Quantity | None, equal: Equal
) -> bool | None:
    """Compare degrees with a multiple of pi, in radians; None if it is not such a pair."""
    for value, other, swapped in ((first, requested, False), (second, given, True)):
        if value is None or value.unit != "degree" or r"\pi" not in other:
            continue
        radians = f"\\frac{{{value.value.numerator}}}{{{180 * value.value.denominator}}}\\pi"
        other = _RADIANS.sub("", other)
        if not is_expression(other):
            return False
        return equal(other, radians) if swapped else equal(radians, other)
    return None


def _same_values(given: str, requested: str, equal: Equal, depth: int) -> bool | None:
    """Compare values of several unknowns with each other, and with tuples of them; None if neither has names."""
    first, second = alternatives(given), alternatives(requested)
    if first is None and second is None:
        return None
    if first is not None and second is not None:
        if len(first) == len(second) and set(first[0]) == set(second[0]):
            order = list(second[0])
            return _unordered(
                [as_tuple(values, order) for values in first],
                [as_tuple(values, order) for values in second],
                lambda one, other: _quietly(one, other, equal, depth),
            )
        return False if roots(first[0]) is None and roots(second[0]) is None else None
    named, other = (first, requested) if first is not None else (second, given)
    assert named is not None
    several = roots(named[0]) if len(named) == 1 else None
    if several is not None and vector(other, brackets="(") is None:
        texts = (", ".join(several), other) if first is not None else (other, ", ".join(several))
        return _quietly(*texts, equal, depth)
    # A tuple is in the order of the alphabet, unless the reference names another one.
    order = sorted(named[0]) if first is not None else list(named[0])
    tuples = ", ".join(as_tuple(values, order) for values in named)
    if not any(mark in other for mark in ("(", "<", r"\begin", r"\langle")):
        return None
    return _quietly(tuples, other, equal, depth) if first is not None else _quietly(other, tuples, equal, depth)


def _same_structure(given: str, requested: str, equal: Equal, depth: int) -> bool | None:
    """Compare matrices, intervals, containers and lists; None if neither text is one."""
    decided = _same_matrix(given, requested, equal, depth)
    if decided is not None:
        return decided
    spans, wanted_spans = intervals(given), intervals(requested)
    if spans is not None and wanted_spans is not None:
        return _unordered(spans, wanted_spans, lambda one, other: _same_container(one, other, equal, depth))
    if (spans is None) != (wanted_spans is None) and (has_inequality(given) == has_inequality(requested)):
        # 2x > 6 is no half-line as it stands, so algebra compares it with one.
        return None if has_inequality(given) and bare_list(given) is None and bare_list(requested) is None else False
    held, wanted_held = container(given), container(requested)
    if held is not None and wanted_held is not None:
        return _same_container(held, wanted_held, equal, depth)
    parts, wanted_parts = _members(given, held), _members(requested, wanted_held)
    if held is not None and parts is None and wanted_parts is not None and len(held.members) > 2 and given[0] == "[":
        # A programmer's list. Two members in brackets are an interval.
        parts = held.members
    if parts is not None and wanted_parts is not None:
        return _unordered(parts, wanted_parts, lambda one, other: _quietly(one, other, equal, depth))
    return None if held is None and wanted_held is None and parts is None and wanted_parts is None else False


def _same_matrix(given: str, requested: str, equal: Equal, depth: int) -> bool | None:
    """Compare matrices with each other and with vectors written otherwise; None if neither text is a matrix."""
    cells, wanted_cells = matrix(given), matrix(requested)
    if cells is not None and wanted_cells is not None:
        return len(cells) == len(wanted_cells) and all(
            _pairwise(row, wanted_row, equal, depth) for row, wanted_row in zip(cells, wanted_cells, strict=True)
        )
    if r"\begin" in given and r"\begin" in requested:
        return _same_expression(given, requested, equal)
    brackets = "(" if cells is None and wanted_cells is None else "(["
    members, wanted_members = vector(given, brackets=brackets), vector(requested, brackets=brackets)
    if members is not None and wanted_members is not None and not (container(given) and container(requested)):
        return _pairwise(members, wanted_members, equal, depth)
    return False if cells is not None or wanted_cells is not None else None


def _members(text: str, held: Container | None) -> Sequence[str] | None:
    """Return the members of a set or a bare list; an ordered container is no list."""
    if held is not None:
        return None if held.ordered else held.members
    return bare_list(text)


def _same_container(given: Container, requested: Container, equal: Equal, depth: int) -> bool:
    if given.ordered != requested.ordered:
        return False
    if not given.ordered:
        return _unordered(given.members, requested.members, lambda one, other: _quietly(one, other, equal, depth))
    if (given.opening, given.closing) != (requested.opening, requested.closing):
        return False
    return _pairwise(given.members, requested.members, equal, depth)


def _pairwise(given: Sequence[str], requested: Sequence[str], equal: Equal, depth: int) -> bool:
    return len(given) == len(requested) and all(
        _quietly(one, other, equal, depth) for one, other in zip(given, requested, strict=True)
    )


def _unordered(given: Sequence[Item], requested: Sequence[Item], alike: Callable[[Item, Item], bool]) -> bool:
    """Whether every member finds a partner of its own. Equality is transitive, so the first partner will do."""
    left = list(requested)
    if len(given) != len(left) or len(left) > 50:
        return False
    for item in given:
        for index, candidate in enumerate(left):
            if alike(item, candidate):
                del left[index]
                break
        else:
            return False
    return True


def _quietly(given: str, requested: str, equal: Equal, depth: int) -> bool:
    """Compare two members; one that cannot be read is a wrong member."""
    try:
        return _same(given, requested, equal, depth - 1)
    except Unreadable:
        return False


def _same_assignment(given: str, requested: str, equal: Equal, depth: int) -> bool | None:
    """ "x = 5" equals "5" and "x=5", not "y = 5"; None if neither is an assignment."""
    first = assignment(given) if bare_list(given) is None else None
    second = assignment(requested) if bare_list(requested) is None else None
    if first is not None and second is not None and first[0] == second[0]:
        return _same(first[1], second[1], equal, depth - 1)
    if first is not None and second is None and "=" not in requested:
        return _same(first[1], requested, equal, depth - 1)
    if second is not None and first is None and "=" not in given:
        return _same(given, second[1], equal, depth - 1)
    if first is not None and second is not None and (quantity(first[1]) or quantity(second[1])):
        return False
    return None


def _same_expression(given: str, requested: str, equal: Equal) -> bool:
    (given_part, unit), (wanted_part, wanted_unit) = split_unit(given), split_unit(requested)
    if is_expression(given_part) and is_expression(wanted_part) and (unit or wanted_unit):
        if unit and wanted_unit and not same_quantity(unit, wanted_unit):
            return False
        return equal(given_part, wanted_part)
    if not is_expression(requested):
        return bool(_words(requested)) and _words(given) == _words(requested)
    if not is_expression(given):
        return False
    return equal(given, requested)


def _plain(text: str, value: Quantity | None) -> str:
    """``text`` without thousands separators, so that no comma is taken for that of a list."""
    if value is not None and not value.unit and not value.percent:
        return f"\\frac{{{value.value.numerator}}}{{{value.value.denominator}}}"
    return text if container(text) else _THOUSANDS.sub(lambda result: result.group().replace(",", ""), text)


def _words(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


def _squeezed(text: str) -> str:
    # Space between digits separates numbers: "3 4" is not 34.
    return re.sub(r"(?<!\d) | (?!\d)", "", " ".join(text.split()))
