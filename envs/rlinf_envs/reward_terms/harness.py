"""Code that the sandbox runs: a program with its tests, or one that reads and prints.

A program shares its process with assertions about it. They see its names, and it could see what reports on them; what
it makes of Python's functions, of ``pytest`` and of the row's helpers does not reach them. The results of calls and the
output of a program that reads are compared outside, where what is right stays.
"""

from __future__ import annotations

import functools
from pathlib import Path

from rlinf_envs.reward_terms.prompt_code import without
from rlinf_envs.reward_terms.written_tests import Calls, Statements

# The program first, then the tests one by one, in a copy of its names. The mark is new for each run, so that no program
# can print a result that it has learned by heart; results are written past whatever the program has made of print.
_HARNESS = """
def run():
    import builtins, json, os, sys, types
    builtins.exit = builtins.quit = sys.exit
    originals, python = builtins.__dict__, dict(builtins.__dict__)
    def report(text, write=os.write):
        write(1, b"\\n{mark}" + text.encode("ascii") + b"\\n")
    def module(name, code, load=exec):
        sys.modules[name] = types.ModuleType(name)
        load(code, sys.modules[name].__dict__)
        return sys.modules[name].__dict__
    def honest(value):
        equal = getattr(type(value), "__eq__", None)
        if getattr(equal, "__globals__", None) is names:
            try:
                equals_all = value == object()
            except Exception:
                equals_all = False
            if equals_all:
                raise AssertionError("equals everything")
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            for each in value.values() if isinstance(value, dict) else value:
                honest(each)
        return value
    pytest = compile({stand_in!r}, "pytest.py", "exec")
    module("pytest", pytest)
    names = module("solution", {before!r})
    names["__file__"] = "program.py"
    sys.stdout = sys.stderr = open(os.devnull, "w")
    try:
        exec(compile({program!r}, "program.py", "exec"), names)
    except (EOFError, SystemExit):  # it reads, or ends, behind what it defines
        pass
    originals.update(python)
    module("pytest", pytest)
    tests = dict(names, __name__="tests", _honest=honest)
    exec({after!r}, tests)
    exec(compile({setup!r}, "tests.py", "exec"), tests)
    for test in {tests!r}:
        originals.update(python)
        try:
            exec(compile(test, "test.py", "exec"), tests)
            result = {result}
        except BaseException:
            result = ""
        report(result)
run()
"""
# What a program prints for people to read is no part of its output.
_READING = """
import builtins, io, sys
sys.stderr = io.StringIO()
builtins.exit = builtins.quit = sys.exit
exec(compile({program!r}, "program.py", "exec"), {{"__name__": "__main__", "__builtins__": __builtins__}})
"""
# Names that LeetCode's editor has, whose tasks have tests of this kind. The last line restores pow.
_LEETCODE = """
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
from builtins import *
"""
_CALLED = """
def _called(name):
    if callable(globals().get(name)):
        return globals()[name]
    if "Solution" in globals():
        solution = globals()["Solution"]()
        return getattr(solution, name or [each for each in vars(type(solution)) if each[0] != "_"][-1])
    codes = [(each, getattr(each, "__code__", None)) for each in list(globals().values())]
    return [each for each, code in codes if code and code.co_filename == "program.py"][-1]
def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if type(value) in (bool, int, float, str, type(None)):
        return value
    raise TypeError("no value of JSON")
"""
_CALL = "_result = _plain(_called({name!r})(*{arguments}))"


def harness(program: str, tests: Statements | Calls, mark: str) -> str:
    """Return a program that writes a line for each test: ``mark`` and its result as JSON, nothing if it failed."""
    if isinstance(tests, Statements):
        before = tests.code + "\nfrom builtins import *" if tests.code else ""
        after = without(tests.code, tests.name) if tests.name else ""
        setup, statements, result = tests.setup, list(tests.tests), '"1"'
    else:
        before, after, setup, result = _LEETCODE, "", _CALLED, 'json.dumps(tests["_result"])'
        statements = [_CALL.format(name=tests.name, arguments=arguments) for arguments, _ in tests.pairs]
    uses_pytest = "pytest" in setup or "pytest" in program
    return _HARNESS.format(
        program=program,
        before=before,
        after=after,
        setup=setup,
        tests=statements,
        result=result,
        mark=mark,
        stand_in=_stand_in() if uses_pytest else "",
    )


def reading(program: str) -> str:
    """Return ``program`` as it runs on a text that it reads."""
    return _READING.format(program=program)


@functools.cache
def _stand_in() -> str:
    return Path(__file__).with_name("pytest_stand_in.py").read_text(encoding="utf-8")
