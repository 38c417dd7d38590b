"""Code that the sandbox runs: a program with its tests, or one that reads and prints."""

from __future__ import annotations

from rlinf_envs.reward_terms.written_tests import Calls, Statements

# The program first, then the tests one by one, in its names. The mark is new for each run, so that no program can print
# a result that it has learned by heart; results are written past whatever the program has made of print.
_HARNESS = """
def run():
    import os, sys, types
    def report(passed, write=os.write):
        write(1, b"\\n{mark}" + (b"1" if passed else b"0") + b"\\n")
    module = sys.modules["solution"] = types.ModuleType("solution")
    names = module.__dict__
    names.update(__name__="program", __file__="program.py")
    exec({prelude!r}, names)
    sys.stdout = sys.stderr = open(os.devnull, "w")
    try:
        exec(compile({program!r}, "program.py", "exec"), names)
    except (EOFError, SystemExit):  # it reads, or ends, behind what it defines
        pass
    exec(compile({setup!r}, "tests.py", "exec"), names)
    for test in {tests!r}:
        try:
            exec(compile(test, "test.py", "exec"), names)
            passed = True
        except BaseException:
            passed = False
        report(passed)
run()
"""
# What a program prints for people to read is no part of its output.
_READING = """
import io, sys
sys.stderr = io.StringIO()
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
    return {str(key): _plain(each) for key, each in value.items()} if isinstance(value, dict) else value
def _same(value, result):
    if isinstance(value, list) and isinstance(result, list):
        return len(value) == len(result) and all(map(_same, value, result))
    if isinstance(value, dict) and isinstance(result, dict):
        return value.keys() == result.keys() and all(_same(value[key], result[key]) for key in result)
    if {type(value), type(result)} in ({float}, {int, float}):
        return value == result or abs(value - result) <= 1e-6 * max(1.0, abs(result))
    return type(value) in (bool, int, str, type(None)) and value == result
"""
_CALL = (
    "_value = _plain(_called({name!r})(*{arguments}))\nassert any(_same(_value, _plain(each)) for each in {results})"
)


def harness(program: str, tests: Statements | Calls, mark: str) -> str:
    """Return a program that writes a line for each test: ``mark`` and 1 if it passed, else ``mark`` and 0."""
    if isinstance(tests, Statements):
        return _HARNESS.format(program=program, prelude="", setup=tests.setup, tests=list(tests.tests), mark=mark)
    statements = [
        _CALL.format(name=tests.name, arguments=arguments, results=results) for arguments, results in tests.pairs
    ]
    return _HARNESS.format(program=program, prelude=_LEETCODE, setup=_CALLED, tests=statements, mark=mark)


def reading(program: str) -> str:
    """Return ``program`` as it runs on a text that it reads."""
    return _READING.format(program=program)
