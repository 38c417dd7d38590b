"""LaTeX and Markdown that only dress an answer: fonts, colours, sizes, spaces, tags, emphasis and quotation marks."""

from __future__ import annotations

import re

_FONTS = (
    "text|mbox|hbox|textbf|textit|textrm|texttt|textsf|textup|textsl|textsc|textmd|textnormal|emph|underline|uline|mathrm|"
    "mathbf|mathit|mathsf|mathtt|mathnormal|mathbfit|boldsymbol|bm|pmb|operatorname|ensuremath|fbox|boxed|framebox|mathord|"
    "mathop|smash|mathstrut|bold|textsuperscript"
)
_SWITCHES = (
    "bf|it|rm|sf|tt|sl|bfseries|itshape|rmfamily|sffamily|ttfamily|upshape|normalfont|boldmath|tiny|scriptsize|"
    "footnotesize|small|normalsize|large|Large|LARGE|huge|Huge|displaystyle|textstyle|scriptstyle|scriptscriptstyle|"
    "limits|nolimits|centering|noindent|strut|null|relax|nobreak|allowbreak|hfill|hfil|newline|checkmark|blacksquare|qed"
)
_TOKEN = re.compile(
    rf"(?P<font>\\(?:{_FONTS})\*?\s*\{{)|(?P<group>\{{\s*\\(?:{_SWITCHES})(?![A-Za-z])|\{{\s*\\color\s*\{{\w{{1,20}}\}}(?!\s*\{{))"
    r"|(?P<colour>\\(?:textcolor|colorbox|color)\s*(?:\[\w{1,9}\])?\s*\{[\w,.! ]{1,40}\}\s*\{"
    r"|\\fcolorbox\s*\{\w{1,20}\}\s*\{\w{1,20}\}\s*\{)"
    rf"|(?P<gone>\\(?:{_SWITCHES})(?![A-Za-z])|\\(?:color|label)\s*(?:\[\w{{1,9}}\])?\s*\{{[\w,.! ]{{1,40}}\}}"
    r"|\\tag\*?\s*\{[^{}]{0,40}\}|\\[hv]space\*?\s*\{[^{}]{0,20}\}|\\[hv]?phantom\s*\{[^{}]{0,40}\}|\\mspace\s*\{[^{}]{0,20}\})"
    r"|\\.|.",
    re.DOTALL,
)
_MARKS = re.compile(r"[✓✔✅■∎☑️]")


def undressed(text: str) -> str:
    """Return ``text`` without the commands that change nothing but its appearance. One pass.

    Blanks replace fonts, so that a word stays separate from the number before it.
    """
    if "\\" not in text:
        return _MARKS.sub("", text)
    pieces: list[str] = []
    closings: list[str] = []  # what each open brace ends in
    for token in _TOKEN.finditer(_MARKS.sub("", text)):
        if token["font"] or token["group"] or token["colour"]:
            closings.append(" ")
            pieces.append(" ")
        elif token["gone"]:
            pieces.append(" ")
        elif token.group() == "{":
            closings.append("}")
            pieces.append("{")
        elif token.group() == "}" and closings:
            pieces.append(closings.pop())
        else:
            pieces.append(token.group())
    # A command that is never closed is no dress: "\\boxed{5" holds no answer.
    return text if " " in closings else "".join(pieces)
