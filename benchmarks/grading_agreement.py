"""Agreement of ``rlinf_envs.math.verify`` with math-verify and with three graders of lm-eval.

    python -m venv venvs/lm-eval
    venvs/lm-eval/bin/pip install lm-eval==0.4.13 math-verify antlr4-python3-runtime==4.11 sympy
    python benchmarks/grading_agreement.py --lm-eval-python venvs/lm-eval/bin/python [--disagreements FILE.jsonl]
    python benchmarks/grading_agreement.py ... --tasks minerva_math --sample 240

Questions and answers come from reasoning-gym (seeded), the forms of the responses from task formats of lm-eval: a box
(hendrycks_math), ``####`` (gsm8k), "The final answer is $...$. I hope it is correct." (minerva_math), and others that
models write. A wrong response has the answer of another question of the family. The second set are the pairs graded by
hand of the tests. lm-eval's graders are those of its tasks: gsm8k (the filter `flexible-extract`), hendrycks_math and
minerva_math. It needs another version of antlr than math-verify, so it runs in an interpreter of its own. minerva_math
takes seconds a pair (sympy, under an alarm of 5 s of wall time): a quiet machine, or a sample.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import yaml
from records import add_output, figures_of_table, save

ROOT = Path(__file__).parents[1]
FAMILIES = (
    "chain_sum", "fraction_simplification", "complex_arithmetic", "polynomial_equations", "simple_equations",
    "polynomial_multiplication", "decimal_arithmetic", "lcm", "products", "calendar_arithmetic", "dice", "coin_flip",
    "advanced_geometry", "simple_integration",
)  # fmt: skip
FORMS = {
    "box": "We add up.\nSo it is $\\boxed{{{right}}}$.",
    "hashes": "We add up.\n#### {right}",
    "minerva": "We add up.\nFinal Answer: The final answer is ${right}$. I hope it is correct.",
    "the answer is": "We add up, so the answer is {right}.",
    "bold": "We add up.\n\n**Answer:** **{right}**",
    "tag": "We add up. <answer>{right}</answer>",
    "thoughts": "<think>\nPerhaps \\boxed{{{wrong}}}?\n</think>\nIt is \\boxed{{{right}}}.",
    "open thoughts": "<think>\nPerhaps \\boxed{{{right}}}? No, wait",
    "heading": "#### Step 1\nWe add up.\n\n#### Final Answer\n\\boxed{{{right}}}",
    "corrected": "It is \\boxed{{{wrong}}}. That was wrong: it is \\boxed{{{right}}}.",
    "denied": "It is certainly not \\boxed{{{right}}}.",
    "sentence": "We add up.\nSo we get {right}.",
}
NEVER_RIGHT = ("open thoughts", "denied")
SEED = 20
QUESTIONS = 6


@dataclass(frozen=True)
class Pair:
    """One response with its reference and whether it is right."""

    source: str
    form: str
    response: str
    answer: str
    right: bool


def generated() -> Iterator[Pair]:
    """The pairs of all families and forms, the same at each call."""
    gym = importlib.import_module("reasoning_gym")
    for family in FAMILIES:
        dataset = gym.create_dataset(family, size=10 * QUESTIONS, seed=SEED)
        answers = list(dict.fromkeys(item["answer"].strip("$ ") for item in dataset))
        for index, answer in enumerate(answers[:QUESTIONS]):
            other = answers[(index + 1) % len(answers)]
            for form, text in FORMS.items():
                for right in (True, False):
                    given, elsewhere = (answer, other) if right else (other, answer)
                    written = latex(given) if index % 2 else given
                    response = text.format(right=written, wrong=elsewhere)
                    yield Pair(family, form, response, answer, right and form not in NEVER_RIGHT)


def latex(answer: str) -> str:
    """``answer`` as LaTeX would have it: fractions, powers, thousands separators."""
    if re.fullmatch(r"-?\d{4,}", answer):
        return f"{int(answer):,}"
    if re.fullmatch(r"-?\d+/\d+", answer):
        value = Fraction(answer)
        return ("-" if value < 0 else "") + rf"\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    return re.sub(r"\*\*(\w+)", r"^{\1}", answer).replace("*", "")


def by_hand() -> Iterator[Pair]:
    """The pairs of the tests, graded by hand."""
    folder = ROOT / "tests" / "envs" / "math"
    for line in (folder / "graded.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        yield Pair("by hand", case["kind"], case["response"], case["answer"], case["correct"])
    sys.path.insert(0, str(ROOT))
    answers = importlib.import_module("tests.envs.math.test_grading_families").ANSWERS
    responses = importlib.import_module("tests.envs.math.test_grading_responses").RESPONSES
    for families_of, wrap in ((answers, r"Thus we have \boxed{%s}."), (responses, "%s")):
        for kind, members in families_of.items():
            for answer, rights, wrongs in members:
                for given in (*rights, *wrongs):
                    yield Pair("by hand", kind, wrap % given, answer, given in rights)


def ours(pairs: Sequence[Pair]) -> list[bool]:
    """Verdicts of this project."""
    pool = importlib.import_module("rlinf_envs.math.pool").VerifierPool()
    verdicts = pool.verify([pair.response for pair in pairs], [pair.answer for pair in pairs])
    pool.close()
    return [bool(verdict) for verdict in verdicts]


def math_verify(pairs: Sequence[Pair]) -> list[bool]:
    """Verdicts of math-verify as its documentation uses it; the reference goes in as mathematics."""
    library = importlib.import_module("math_verify")
    return [bool(library.verify(library.parse(f"${pair.answer}$"), library.parse(pair.response))) for pair in pairs]


def lm_eval(pairs: Sequence[Pair], tasks: Sequence[str]) -> dict[str, list[bool]]:
    """Verdicts of lm-eval's ``tasks``: each pair becomes the document that the task would have made of it."""
    return {f"lm-eval {name}": [grade(pair) for pair in pairs] for name in tasks for grade in (TASKS[name](),)}


def gsm8k() -> Callable[[Pair], bool]:
    """The filter `flexible-extract` and the metric of the task's file."""
    extraction = importlib.import_module("lm_eval.filters.extraction")
    metrics = importlib.import_module("lm_eval.api.metrics")
    package = importlib.import_module("lm_eval").__file__
    task = yaml.safe_load((Path(str(package)).parent / "tasks" / "gsm8k" / "gsm8k.yaml").read_text(encoding="utf-8"))
    chain = next(one["filter"] for one in task["filter_list"] if one["name"] == "flexible-extract")
    read = extraction.RegexFilter(**{name: value for name, value in chain[0].items() if name != "function"})
    (metric,) = task["metric_list"]
    options = {name: metric[name] for name in ("ignore_case", "ignore_punctuation", "regexes_to_ignore")}

    def grade(pair: Pair) -> bool:
        ((found,),) = read.apply([[pair.response]], [{}])
        scored = metrics.exact_match_hf_evaluate([found], [f"#### {pair.answer}"], **options)
        return bool(scored["exact_match"])

    return grade


def hendrycks_math() -> Callable[[Pair], bool]:
    """Equal strings between the first and the last dollar, after MATH's own normalisation."""
    utils = importlib.import_module("lm_eval.tasks.hendrycks_math.utils")

    def grade(pair: Pair) -> bool:
        solution = {"solution": f"\\boxed{{{pair.answer}}}"}
        return bool(utils.process_results(solution, [pair.response])["exact_match"])

    return grade


def minerva_math() -> Callable[[Pair], bool]:
    """Its own answer by sympy, or its call of math-verify."""
    utils = importlib.import_module("lm_eval.tasks.minerva_math.utils")

    def grade(pair: Pair) -> bool:
        doc = {"answer": utils.normalize_final_answer(pair.answer), "solution": f"${pair.answer}$"}
        return any(utils.process_results(doc, [pair.response]).values())

    return grade


TASKS: Mapping[str, Callable[[], Callable[[Pair], bool]]] = {
    "gsm8k": gsm8k,
    "hendrycks_math": hendrycks_math,
    "minerva_math": minerva_math,
}


def in_another(interpreter: str, pairs: Sequence[Pair], tasks: Sequence[str]) -> dict[str, list[bool]]:
    """:func:`lm_eval` in an interpreter that has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        path.write_text("\n".join(json.dumps(asdict(pair)) for pair in pairs), encoding="utf-8")
        done = subprocess.run(
            [interpreter, __file__, "--grade-as-lm-eval", str(path), "--tasks", *tasks],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table(pairs: Sequence[Pair], verdicts: dict[str, list[bool]]) -> Iterator[str]:
    """Lines of a Markdown table: counts of each grader."""
    yield "| pairs | grader | n | TP | TN | FP | FN | right |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, where in (
        ("generated", lambda pair: pair.source != "by hand"),
        ("by hand", lambda pair: pair.source == "by hand"),
    ):
        for grader, given in verdicts.items():
            counts = Counter((verdict, pair.right) for pair, verdict in zip(pairs, given, strict=True) if where(pair))
            total = max(1, sum(counts.values()))
            tp, tn, fp, fn = (counts[key] for key in ((True, True), (False, False), (True, False), (False, True)))
            yield f"| {name} | {grader} | {total:,} | {tp} | {tn} | {fp} | {fn} | {(tp + tn) / total:.3f} |"


def main(arguments: Iterable[str] | None = None) -> None:
    """Prints the table; writes every pair on which the graders or the label disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lm-eval-python", help="an interpreter with lm_eval, math_verify, antlr 4.11 and sympy")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=["gsm8k", "hendrycks_math"])
    parser.add_argument("--sample", type=int, help="as many pairs, drawn from all")
    parser.add_argument("--disagreements", type=Path, help="a JSONL file to write")
    add_output(parser, "grading")
    parser.add_argument("--grade-as-lm-eval", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.grade_as_lm_eval:
        pairs = [Pair(**json.loads(line)) for line in options.grade_as_lm_eval.read_text(encoding="utf-8").split("\n")]
        print(json.dumps(lm_eval(pairs, options.tasks)))
        return
    pairs = [*generated(), *by_hand()]
    if options.sample:
        pairs = random.Random(SEED).sample(pairs, options.sample)
    verdicts = {"rlinf": ours(pairs), "math-verify": math_verify(pairs)}
    if options.lm_eval_python:
        verdicts |= in_another(options.lm_eval_python, pairs, options.tasks)
    text = "\n".join(table(pairs, verdicts))
    print(text)
    if options.write:
        save(options.write, figures_of_table(text, labels=2), intervals="")
    if options.disagreements:
        with options.disagreements.open("w", encoding="utf-8") as file:
            for index, pair in enumerate(pairs):
                by_grader = {name: given[index] for name, given in verdicts.items()}
                if len({pair.right, *by_grader.values()}) > 1:
                    file.write(json.dumps({**asdict(pair), **by_grader}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
