"""Calculations of worked solutions in steps of one digit."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

import pytest
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv
from rlinf_envs.reasoning_gym.families import make_family
from rlinf_envs.reasoning_gym.small_steps import in_small_steps

PURE = re.compile(r"[-+*/().\d]+")


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("45-19=26", "45-19=35-9=26"),
        ("312 - 178 = 134 pens", "312 - 178 = 212-78 = 142-8 = 134 pens"),
        ("36+17=53 pebbles", "36+17=46+7=53 pebbles"),
        ("24*13 = 312", "24*13 = 24*10+24*3 = 240+60+12 = 240+72 = 310+2 = 312"),
        ("672/8 = 84", "672/8 = 640/8+32/8 = 80+4 = 84"),
        ("100 - 24*3 = 28", "100 - 24*3 = 100-(60+12) = 100-72 = 30-2 = 28"),
        ("94*0.5=47", "94*0.5=45+2=47"),
        ("$400,000 x 8/100 = $32,000", "$400,000 x 8/100 = 400000*8/100 = 4000*8 = $32,000"),
        ("3 hats + 28 hats + 15 hats = 46 hats", "3 hats + 28 hats + 15 hats = 3+28+15 = 31+15 = 41+5 = 46 hats"),
        ("2(55+21) = 152", "2(55+21) = 2*(55+21) = 2*(75+1) = 2*76 = 140+12 = 150+2 = 152"),
        ("Warm water = 4+2(20)=44.0 minutes", "Warm water = 4+2(20)=4+2*20=4+40=44.0 minutes"),
        ("$630 * 40% = $252", "$630 * 40% = 630*0.4 = 240+12 = 250+2 = $252"),
        ("32% + 41% = 73%", "32% + 41% = 32+41 = 72+1 = 73%"),
        ("(3*4+5*6)/7=6", "(3*4+5*6)/7=(12+30)/7=42/7=6"),
        ("4500/900 = 5", "4500/900 = 45/9 = 5"),
        ("148.75/1.25 = 119", "148.75/1.25 = 14875/125 = 12500/125+1250/125+1125/125 = 100+10+9 = 110+9 = 119"),
        ("440 * 1/2 = $220", "440 * 1/2 = 440/2 = 400/2+40/2 = 200+20 = $220"),
        ("1/5 * 4000 = 800", "1/5 * 4000 = 4000/5 = 800"),
        ("half * 126 bees = 63 bees", "half * 126 bees = 1/2*126 = 126/2 = 120/2+6/2 = 60+3 = 63 bees"),
        ("56*3/4=42", "56*3/4=56/4*3=(40/4+16/4)*3=(10+4)*3=14*3=30+12=42"),
        ("24 x 75/100 = 18", "24 x 75/100 = 24*75/100 = 24*3/4 = 6*3 = 18"),
        ("6 x 0.6666666666666666 = 4.0", "6 x 0.6666666666666666 = 6*2/3 = 2*6/3 = 2*2 = 4.0"),
        ("370/1480*100=25", "370/1480*100=100/(1480/370)=100/(148/37)=100/4=80/4+20/4=20+5=25"),
        ("47/103*721=329", "47/103*721=47*721/103=47*7=280+49=320+9=329"),
    ],
)
def test_a_calculation_is_written_out(line: str, written: str) -> None:
    assert in_small_steps(line) == written


@pytest.mark.parametrize(
    "line",
    [
        "No numbers at all.",
        "9 - 3 = 6",  # one step
        "6 days/week * 2 weeks/month = 12 days/month",  # one step, with units that hold a stroke
        "45 - 19 = 27",  # wrong
        "x + 40 = y",
        "7/0 = 3",
        "1/4 = 0.25",
        "900/100 = 9",
        "50% * 50% = 25%",
        "1/3*10 = 3.3333333333333335",  # no decimal number of a few digits
        "9 ** 9 = 387420489",
        "-242 / 22 = -11",
        "-62 * 51 = -3162",
        "5 - 45 + 67 = 27",  # -40 on the way
    ],
)
def test_all_else_stays_as_it_is(line: str) -> None:
    assert in_small_steps(line) == line


def test_solutions_of_gsm_symbolic_keep_their_lines_and_every_form_its_value() -> None:
    family = make_family("gsm_symbolic", seed=1, size=300, params=None, curriculum=None)
    forms = 0
    for position in range(300):
        solution = str(family[position]["metadata"]["answer_cot"]).partition("####")[0]
        for line in solution.splitlines():
            written = in_small_steps(line)
            parts, before = written.split("="), line.split("=")
            assert (parts[0], parts[-1]) == (before[0], before[-1])
            # What is new are forms of numbers alone, each equal to the one before and to the line's value.
            for left, right in pairwise(parts):
                if PURE.fullmatch(left.strip()) and PURE.fullmatch(right.strip()):
                    forms += 1
                    if left.strip() not in line or right.strip() not in line:
                        assert _value(left) == _value(right), written
    assert forms > 500


def _value(form: str) -> Fraction:
    form = re.sub(r"(?<=\d)\(", "*(", form.strip(" ."))
    return Fraction(eval(re.sub(r"(\d+(?:\.\d+)?)", r"Fraction('\1')", form), {"Fraction": Fraction}))


def test_a_demonstration_in_small_steps_ends_in_the_answer() -> None:
    env = ReasoningGymEnv(task="gsm_symbolic", size=20, answer_format="####", demonstrations={"small_steps": 1.0})
    plain = ReasoningGymEnv(task="gsm_symbolic", size=20, answer_format="####", demonstrations={"worked": 1.0})
    changed = 0
    for (prompt, response), (same_prompt, worked) in zip(
        env.demonstrations(range(20)), plain.demonstrations(range(20)), strict=True
    ):
        assert prompt == same_prompt
        assert response.splitlines()[-1] == worked.splitlines()[-1]
        assert len(response.splitlines()) == len(worked.splitlines())
        changed += response != worked
    assert changed > 10
