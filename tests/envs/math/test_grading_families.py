"""Answers by family: for each reference, responses that are right and near misses that must stay refused."""

import pytest
from rlinf_envs.math.grading import grade

Family = list[tuple[str, list[str], list[str]]]

ANSWERS: dict[str, Family] = {
    "tiny and huge numbers": [
        (
            r"\frac{1}{2010!}",
            [r"\frac{1}{2010!}", r"\frac{2}{2\cdot 2010!}"],
            [r"\frac{1}{2011!}", "0", r"\frac{1}{2009!}"],
        ),
        ("10^{-350}", [r"\frac{1}{10^{350}}", r"10^{-349}\cdot\frac{1}{10}"], ["10^{-351}", "0", "-10^{-350}"]),
        ("e^{-900}", [r"\frac{1}{e^{900}}"], ["e^{-901}", "0", r"\pi^{-900}"]),
        ("3^{1500}", ["9^{750}", r"3\cdot 3^{1499}"], ["3^{1501}", "3^{1500}+1", "-3^{1500}"]),
        ("1500!", [r"1500\cdot 1499!"], ["1501!", "1499!"]),
        (
            r"\sqrt{3}",
            [r"\frac{3}{\sqrt{3}}"],
            ["1.7320508", "1.7320508075688772", r"\sqrt{3}+10^{-12}", r"\sqrt3+10^{-60}"],
        ),
        (r"\frac{x}{1500!}", [r"x\cdot\frac{1}{1500!}"], [r"\frac{x}{1501!}", "0"]),
        (r"\pi", [r"\frac{2\pi}{2}"], ["3.14159265358979", r"\pi+10^{-15}"]),
    ],
    "letter case": [
        ("Y", ["Y", r"\mathrm{Y}"], ["y"]),
        ("m+1", ["1+m"], ["M+1", "1+M"]),
        (r"\frac{1}{2}mv^2", [r"\frac{mv^2}{2}"], [r"\frac{1}{2}MV^2", r"\frac{1}{2}mV^2"]),
        (r"\Gamma", [r"\Gamma"], [r"\gamma"]),
        ("T+t", ["t+T"], ["2t", "2T"]),
        ("f(x)=3x", ["f(x)=3x"], ["F(x)=3x"]),
        ("2i", ["2i", r"\sqrt{-4}"], ["2I", "2"]),
        ("PQ=7", ["PQ=7"], ["pq=8"]),
        ("Monday", ["monday", "MONDAY", r"\text{Monday}"], ["Tuesday"]),
        ("C", ["c", "(c)", "C."], ["d", "(d)"]),
    ],
    "dress": [
        (
            "17",
            [
                r"\boldsymbol{17}",
                r"\bm{17}",
                r"{\bf 17}",
                r"\bfseries 17",
                r"\textcolor{red}{17}",
                r"\color{green}17",
                r"\underline{17}",
                r"\Huge 17",
                r"{\large 17}",
                r"\texttt{17}",
                r"\emph{17}",
                r"17\tag{3}",
                r"17\hspace{2mm}",
                r"17\ ",
                r"17\\",
                "*17*",
                "_17_",
                "***17***",
                '"17"',
                "“17”",
                "`17`",
                r"\mathbf{\textit{17}}",
                r"\fcolorbox{red}{white}{17}",
                r"17\,\checkmark",
                "17 ✓",
                "17 (units)",
                "17 (apples)",
                "17 (approximately)",
                "17 (seventeen)",
                r"\mathord{17}",
                r"\text{17}",
                r"\phantom{x}17",
            ],
            [
                r"\boldsymbol{16}",
                r"{\bf 71}",
                r"\textcolor{17}{16}",
                r"16\tag{17}",
                "*71*",
                "17 (million)",
                "17 (or 18)",
                "17 (not)",
                "17 (mod 20)",
                "17 (sixteen)",
                r"\phantom{17}",
                r"\underline{1}7x",
                "17 (dozen)",
                r"\bf 17 + 1",
            ],
        ),
        (
            r"\frac{3}{4}",
            [r"\boldsymbol{\frac{3}{4}}", r"{\bf\frac34}", r"\displaystyle\frac34", "3⁄4", "³⁄₄", "¾"],
            [r"\boldsymbol{\frac{4}{3}}", "⁴⁄₃"],
        ),
        ("(1,2)", [r"\mathbf{(1,2)}", r"\textbf{(}1,2\textbf{)}", r"\color{blue}{(1,2)}"], [r"\mathbf{(2,1)}"]),
        ("5 cm", ["5 (cm)", r"5\,(\text{cm})", r"\textbf{5 cm}"], ["5 (m)", "5 (kg)"]),
    ],
    "values of unknowns": [
        (
            "(3,4)",
            [
                "x=3, y=4",
                "y=4, x=3",
                r"x=3\text{ and }y=4",
                "x=3; y=4",
                "(x,y)=(3,4)",
                "(y,x)=(4,3)",
                "a=3,b=4",
                r"\begin{cases}x=3\\y=4\end{cases}",
                r"\begin{aligned}x&=3\\y&=4\end{aligned}",
                "x_1=3,x_2=4",
            ],
            [
                "x=4, y=3",
                "x=3",
                "x=3, y=4, z=5",
                "(x,y)=(4,3)",
                "y=3, x=4",
                "3, 4",
                "x=3 or y=4",
                r"\begin{cases}x=4\\y=3\end{cases}",
            ],
        ),
        ("x=3, y=4", ["(3,4)", "y=4, x=3", r"\langle 3,4\rangle"], ["(4,3)", "x=4, y=3", "x=3", "[3,4]", "(3,4,5)"]),
        ("y=4, x=3", ["x=3, y=4", "(4,3)"], ["(3,4)"]),
        (
            "(1,2),(3,4)",
            ["x=1,y=2 or x=3,y=4", "x=3,y=4 or x=1,y=2", "(x,y)=(1,2) or (3,4)"],
            ["x=1,y=2", "x=1,y=4 or x=3,y=2"],
        ),
        (
            r"x=5\text{ or }x=6",
            ["x_1=5, x_2=6", "5, 6", r"x\in\{5,6\}", r"\{6,5\}"],
            ["x_1=5", "x_1=5,x_2=7", "5", "y=5 or y=6"],
        ),
    ],
    "vectors and matrices": [
        (
            "(1,2)",
            [
                r"\langle 1,2\rangle",
                "⟨1, 2⟩",
                r"\begin{pmatrix}1\\2\end{pmatrix}",
                r"(1,2)^T",
                r"\mathbf{i}+2\mathbf{j}",
                r"\hat{i}+2\hat{j}",
            ],
            [
                r"\begin{pmatrix}2\\1\end{pmatrix}",
                r"\langle 2,1\rangle",
                r"2\mathbf{i}+\mathbf{j}",
                "[1,2]",
                "1,2",
                r"\mathbf{i}+2\mathbf{k}",
            ],
        ),
        (
            r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
            [
                "[[1,2],[3,4]]",
                r"\left[\begin{smallmatrix}1&2\\3&4\end{smallmatrix}\right]",
                r"\begin{bmatrix}1&2\\3&4\end{bmatrix}",
                r"\begin{Bmatrix}1&2\\3&4\end{Bmatrix}",
                r"\begin{pmatrix}1&3\\2&4\end{pmatrix}^T",
                r"\left(\begin{array}{cc}1&2\\3&4\end{array}\right)",
            ],
            [
                "[[1,3],[2,4]]",
                "[1,2,3,4]",
                "[[1,2],[3]]",
                r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T",
                r"\begin{vmatrix}1&2\\3&4\end{vmatrix}",
                "-2",
            ],
        ),
        (
            r"\begin{pmatrix}5\\6\\7\end{pmatrix}",
            ["(5,6,7)", "[5,6,7]", "(5,6,7)^T", r"5\vec{i}+6\vec{j}+7\vec{k}"],
            ["(7,6,5)", "(5,6)", "5,6,7", r"5\vec{i}+6\vec{j}"],
        ),
        ("1, 2, 3", ["[1, 2, 3]", "[3, 2, 1]", r"\{1,2,3\}"], ["(1,2,3)", "[1,2]", "[1,2,4]", r"\{1,2\}"]),
    ],
    "intervals": [
        (
            "(1,2)",
            ["]1,2[", "1<x<2", "x>1 and x<2", "x>1, x<2", r"x>1\land x<2", "2>x>1"],
            ["[1,2]", "]1,2]", "[1,2[", "x>1 or x<2", "x<1 and x>2", "x>1", r"x\ge 1, x<2"],
        ),
        (
            r"(-\infty,0)\cup(0,\infty)",
            [r"\mathbb{R}\setminus\{0\}", r"ℝ ∖ \{0\}", r"x\ne 0", r"\{x\in\mathbb{R}\mid x\ne 0\}"],
            [r"\mathbb{R}", r"\mathbb{R}\setminus\{1\}", r"\mathbb{Z}\setminus\{0\}", r"\{0\}", r"x = 0"],
        ),
        (
            r"\mathbb{R}\setminus\{2,-2\}",
            [r"(-\infty,-2)\cup(-2,2)\cup(2,\infty)", r"\mathbb{R} - \{-2,2\}"],
            [r"(-\infty,-2)\cup(2,\infty)", r"x\ne 2"],
        ),
        (
            r"(2,\infty)",
            [r"\{x\mid x>2\}", r"\{x : x>2\}", r"\{ x \in \mathbb{R} | 2<x \}"],
            [r"\{x\mid x>3\}", r"\{n\in\mathbb{Z}\mid n>2\}", r"\{2\}"],
        ),
        ("[1,2)", ["[1,2[", r"x\ge 1, x<2", r"1\le x<2"], ["]1,2[", "x>1, x<2", r"x\ge 2, x<1"]),
        (
            r"(-\infty,1)\cup(2,\infty)",
            ["x<1 or x>2", "x<1, x>2", r"]-\infty,1[\cup]2,\infty["],
            ["x<1 and x>2", "x>1, x<2", r"(1,2)"],
        ),
        (
            "x>4",
            ["2x>8", "x-4>0", "4<x", r"(4,\infty)", "-x<-4"],
            ["2x>9", "x<4", r"x\ge 4", "2x<8", "y<4", r"2x\ge 8"],
        ),
    ],
    "units": [
        (
            "2000000",
            ["2 million", "2,000,000", r"2\text{ million}", r"2\times 10^6", r"\$2\text{ million}"],
            ["2 billion", "2", "2 thousand", "20 million"],
        ),
        ("36", ["3 dozen", r"3\text{ dozen}", r"3\text{ dozen eggs}"], ["3", "3 dozens and 1", "4 dozen"]),
        (
            "42 in",
            ["3 ft 6 in", "3 feet 6 inches", "3 feet and 6 inches", "3.5 ft"],
            ["3 ft 5 in", "6 ft 3 in", "3 m 6 in", "3 ft"],
        ),
        (
            "90 minutes",
            ["1 hour 30 minutes", "1 hour and 30 minutes", "1.5 hours"],
            ["1 hour", "1 hour 20 minutes", "30 minutes 1 hour 1"],
        ),
        (
            r"30^\circ",
            [r"\frac{\pi}{6}", r"\pi/6", r"\frac{\pi}{6}\text{ radians}", "30", "30 degrees"],
            [r"\frac{\pi}{3}", r"\pi", r"\frac{30\pi}{6}"],
        ),
        (r"\frac{\pi}{4}", [r"45^\circ", r"45\text{ degrees}"], ["45", r"90^\circ", r"54^\circ"]),
    ],
    "decimals": [
        (
            r"\frac13",
            [r"0.333\ldots", "0.3333...", r"0.\dot{3}", r"0.\overline{3}", "0.(3)", r"0.\bar3", "0.3̅"],
            ["0.333", r"0.33", r"0.\dot{4}", r"0.3\ldots", "0.34..."],
        ),
        (r"\frac{1}{6}", [r"0.1666\ldots", r"0.1\dot{6}", "0.1(6)"], [r"0.\overline{16}", "0.1666"]),
        (r"\frac{4}{33}", [r"0.1212\ldots", r"0.\dot{1}\dot{2}", "0.(12)"], ["0.12", r"0.\dot{1}2"]),
        (r"\pi", [], [r"3.1415\ldots", "3.14..."]),
    ],
    "words and times": [
        ("7", ["seven", r"\text{seven}", "Seven"], ["eight", "seventy", "seven or eight"]),
        ("42", ["forty-two", "forty two"], ["twenty-four", "forty", "four two"]),
        (
            "1205",
            ["one thousand two hundred and five"],
            ["one thousand two hundred", "two hundred and five thousand one"],
        ),
        ("five", ["5", "Five"], ["6", "six"]),
        ("A", ["Ａ"], ["Ｂ"]),
        ("2nd", ["second", "2", "Second", "2^{nd}", r"2^{\text{nd}}"], ["3rd", "first", "third", "2^{n}"]),
        ("does not exist", ["DNE", r"\text{DNE}", "Does not exist."], ["0", r"\infty", "undefined"]),
        (
            "no solution",
            ["no solutions", r"\emptyset", r"\varnothing", "There is no solution"],
            ["0", "one solution", "no real solution"],
        ),
        (
            r"(-\infty,\infty)",
            ["all real numbers", r"\mathbb{R}", r"x\in\mathbb{R}", r"\text{All reals}"],
            ["all integers", r"\mathbb{Z}", r"(0,\infty)"],
        ),
        ("1:30 p.m.", ["1:30 PM", "1:30pm", "13:30", "1:30 P.M."], ["1:30 AM", "1:30", "1:31 PM", "130", "13:31"]),
        ("9:05", ["9:05", "9:05 AM", "9:05 a.m."], ["9:50", "905", "9:06 AM"]),
    ],
    "bases": [
        (
            "1101_2",
            ["1101_2", r"1101_{2}", r"1101_{\text{two}}", "1101", "0b1101", "(1101)_2", "1101 base 2"],
            ["1101_3", "13", "1011_2", "1101_{10}"],
        ),
        ("FF_{16}", ["ff_16", "FF", r"\text{FF}_{16}", "0xFF"], ["FE_16", "255_16", "FF_{17}"]),
        ("255_8", ["255_8"], ["255", "255_9", "255_{10}"]),
        ("13", ["13"], ["13_5", "1101_2"]),
        ("a_2", ["a_2"], ["a_3", "A_2", "10"]),
    ],
    "several letters": [
        (
            "BD",
            ["B, D", "D, B", "B and D", "B;D", r"\text{B, D}", "(B) and (D)", "B & D", "B,D", "B, D only"],
            ["B", "D", "BCD", "B, C", "B or D", "A, B, D", "B, D, E", "none"],
        ),
        ("B, D", ["BD", "B and D", "D,B"], ["BC", "B", "BDE", "b or d"]),
        (
            "B",
            ["option (B)", "Option B", "choice B", "The answer is B", "B 5", r"B \quad 12", "(b)", "[B]"],
            ["B, D", "option C", "B or C", "BD", "option B or C", "Bad"],
        ),
        ("AB", ["BA", "AB"], ["ab", "AC", "ABC"]),
        ("I", ["I", "(I)"], ["i", "1"]),
    ],
    "scales of temperature": [
        (r"20^\circ C", ["20", r"20^\circ", "20 degrees Celsius", r"20^\circ\text{C}"], [r"20^\circ F", "21", "20 m"]),
        (r"20^\circ", ["20 degrees", r"20^\circ C"], ["21 degrees"]),
        ("68 degrees Fahrenheit", [r"68^\circ F", "68"], [r"68^\circ C", "20 degrees Celsius"]),
    ],
    "sets of one member": [
        (r"\{2\}", ["2", "x=2", r"\{2\}", r"x\in\{2\}", "2.0"], ["3", r"\{2,3\}", r"\{\}", "2 or 3"]),
        ("2", [r"\{2\}", r"x=\{2\}"], [r"\{3\}", r"\{2,3\}"]),
        (r"\{(1,2)\}", ["(1,2)"], ["(2,1)", "1,2,3"]),
    ],
    "arithmetic of decimals": [
        ("0.3", [r"0.1\times 3", "0.1+0.2"], [r"0.1\times 4", "0.1+0.2000001"]),
        ("0.45x", ["0.15x+0.3x", r"\frac{9x}{20}"], ["0.15x+0.31x", "0.45"]),
        (r"\frac{3}{10}", ["0.1+0.2"], ["0.1+0.1", "0.3000000001"]),
    ],
    "arguments without braces": [
        (r"\frac\pi6", [r"\frac{\pi}{6}", r"\pi/6", r"\frac\pi{6}"], [r"\frac{\pi}{3}", r"\frac6\pi"]),
        (r"\sqrt{\pi}", [r"\sqrt\pi", r"\pi^\frac12"], [r"\pi", r"\pi^\frac13"]),
        (r"\sqrt2", [r"2^\frac12", r"2^\frac{1}{2}"], ["1", r"2^\frac32"]),
        (r"\frac{a}{b}", [r"\frac ab", "a/b"], [r"\frac ba", "ab"]),
        ("e^{-1}", ["e^-1", r"\frac1e"], ["e", "e-1"]),
        ("x^{-1}y", ["x^-1y", r"\frac{y}{x}"], ["x^{-y}"]),
    ],
    "words, weeks and speeds": [
        ("2", ["two", r"\text{two}"], ["three", "twofold"]),
        ("2 and 3", ["two and three", "3, 2"], ["two or four"]),
        ("14 days", ["2 weeks"], ["1 week"]),
        ("10 m/s", ["36 km/h", "10"], ["36", "10 km/h", "10 mph"]),
        ("(2, 3)", ["(2; 3)"], ["(3; 2)", "[2; 3]"]),
    ],
}


def pairs_of(families: dict[str, Family]) -> list[tuple[str, str, bool]]:
    return [
        (response, answer, right)
        for family in families.values()
        for answer, rights, wrongs in family
        for right, responses in ((True, rights), (False, wrongs))
        for response in responses
    ]


@pytest.mark.parametrize(("given", "wanted", "right"), pairs_of(ANSWERS))
def test_an_answer_in_a_box_is_right_or_refused(given: str, wanted: str, right: bool) -> None:
    verdict = grade(rf"Thus we have \boxed{{{given}}}.", wanted)
    assert verdict.correct == right, verdict
