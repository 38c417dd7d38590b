"""Answers that a sentence of another language announces: "答案是12", "La respuesta es 12", "Ответ: 12".

A table of phrases, and one rule for all of them: the value stands right behind the phrase, as a number, a formula or a
letter, and nothing in its sentence denies it, questions it, names a second one or multiplies it ("12 Millionen").
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class _Language:
    """How a language announces an answer. All fields are patterns; white space is one blank."""

    stems: str
    """Words of which one is in every phrase, in small letters: without any, no pattern is tried."""
    noun: str
    """What the answer is called; a colon may follow it."""
    links: str
    """What may stand between the noun and the value."""
    denials: str = r"(?!)"
    """The same with a negation."""
    conditions: str = r"(?!)"
    """Words in front of the noun that only suppose it ("if the answer is 12")."""
    decimal_comma: bool = False


_LANGUAGES = (
    _Language(
        "答案 选项 選項 结果 結果",  # Chinese, simplified and traditional
        r"(?:最终|最後|最后|正确|正確|标准|標準)?的?(?:答案|选项|選項|结果|結果)",
        r" ?(?:就?是|应该是|應該是|应为|應為|为|為|等于|等於|选择?|選擇?)",
        r" ?(?:不是|并非|並非|不为|不為|不等于|不等於|绝不是|不可能是|不应该是|不應該是)",
        r"(?:如果|若|假设|假設|假如)",
    ),
    _Language("答 解", r"(?:答え|答|正解|解答|解)", r" ?(?:は|が)", conditions=r"(?:もし|仮に)"),  # Japanese
    _Language("답", r"(?:정답|최종 답|답|해답)", r" ?(?:은|는|이)", conditions=r"(?:만약|만일)"),  # Korean
    _Language(
        "ответ",
        r"\b[Оо]твет",
        r" (?:равен|составляет|будет)| ?[—–-] ?(?:это )?",
        r" (?:не|никак не)\b",
        r"\b[Ее]сли",
        True,
    ),
    _Language(
        "respuesta resultado",  # Spanish
        r"\brespuesta(?: (?:correcta|final))?|\bresultado(?: final)?",
        r" (?:es|sería|será|son)(?: (?:igual a|entonces|por lo tanto))?",
        r" (?:no|nunca|tampoco)\b",
        r"\bsi\b",
        True,
    ),
    _Language(
        "réponse résultat",  # French
        r"\bréponse(?: (?:correcte|finale))?|\brésultat(?: final)?|\bbonne réponse",
        r" (?:est|sera|serait|vaut)(?: (?:donc|égale? à|alors))?",
        r" (?:n['’]est|ne)\b",
        r"\bsi\b",
        True,
    ),
    _Language(
        "antwort ergebnis lösung",  # German
        r"\b(?:(?:richtige |korrekte )?antwort|endergebnis|ergebnis|lösung)",
        r" (?:ist|lautet|beträgt|wäre)(?: (?:also|daher|somit|gleich|folglich))?",
        r" (?:ist|lautet|beträgt|wäre) (?:\w+ )?(?:nicht|nie|niemals|kaum)\b",
        r"\b(?:wenn|falls|ob)\b",
        True,
    ),
    _Language(
        "resposta",  # Portuguese
        r"\bresposta(?: (?:correta|final))?",
        r" (?:é|será|seria)(?: (?:igual a|então|portanto))?",
        r" (?:não|nunca)\b",
        r"\bse\b",
        True,
    ),
    _Language(
        "risposta risultato",  # Italian
        r"\brisposta(?: (?:corretta|finale))?|\brisultato(?: finale)?",
        r" (?:è|sarà|sarebbe)(?: (?:quindi|uguale a|pari a))?",
        r" (?:non|mai)\b",
        r"\bse\b",
        True,
    ),
    _Language(
        "antwoord", r"\bantwoord", r" (?:is|luidt)(?: dus)?", r" is (?:niet|nooit)\b", r"\b(?:als|indien)\b", True
    ),  # Dutch
    _Language(
        "odpowied", r"\bodpowied(?:ź|zią)", r" (?:to|brzmi|wynosi|jest)", r" (?:to )?nie\b", r"\bjeśli\b", True
    ),  # Polish
    _Language(
        "cevap yanıt", r"\b(?:doğru )?(?:cevap|yanıt)", r" ?,? ", conditions=r"\beğer\b", decimal_comma=True
    ),  # Turkish
    _Language(
        "đáp lời", r"\b(?:đáp án|đáp số|câu trả lời)", r" (?:là|bằng)", r" không\b", r"\bnếu\b", True
    ),  # Vietnamese
    _Language("jawaban", r"\bjawaban(?:nya)?", r" (?:adalah|ialah)", r" bukan\b", r"\bjika\b", True),  # Indonesian
    _Language(
        "الجواب الإجابة الاجابة النتيجة",
        r"(?:الجواب|الإجابة|الاجابة|النتيجة)",
        r" (?:هو|هي)",
        r" (?:ليس|ليست)",
        r"(?:إذا|لو)",
    ),  # Arabic
    _Language("उत्तर जवाब", r"(?:उत्तर|जवाब)", r" ", conditions="(?:यदि|अगर)"),  # Hindi
)
_VALUE = re.compile(
    r"[ :：*_]*(?:\n[ *]*)?"
    r"(?:(?P<math>\$\$?[^$\n]{1,200}\$\$?|\\\([^\n]{1,200}?\\\)|\\d?frac\{[^{}]{1,40}\}\{[^{}]{1,40}\})"
    r"|(?P<number>[-−+]?[$€£¥]?\d+(?:[.,]\d+)*(?:(?: \d{3})+(?!\d))?(?:/\d+)?%?)"
    r"|(?P<letter>\(?[A-J]\)?)(?![A-Za-z'’À-ž]))"
)
_SENTENCE = re.compile(r"[^.。!！?？\n;；]*(?:\.(?=\d)[^.。!！?？\n;；]*)*[?？]?")
_CLAUSE = re.compile(r"[,，、(（]")
_QUESTION = re.compile(r"[?？]|吗|嗎|呢$|か$|까$|mı\b|mi\b|mu\b|mü\b")
_DENIED_BEHIND = re.compile(r"ではな|ではあり|じゃな|でない|아니|아닙|değil|नहीं|不对|不對|错|錯|falsch|неверн")
_SUPPOSED_BEHIND = re.compile(r"^ ?(?:なら|だと|とす|とし|이라면|라면|ise\b|的话|的話)")
_SECOND = re.compile(
    r"(?:^|(?<=[\s,，、]))(?:或|还是|還是|または|もしくは|あるいは|か(?=\d)|또는|혹은|или|либо|oder|ou|o|u|ó|oppure|of|lub"
    r"|albo|veya|ya da|hoặc|atau|أو|या|vielleicht|peut-être|quizás|возможно|to|bis|bzw)(?=[\s\d]|或|者)"
    r"|^(?:或|还是|または|か)"
)
_SCALED = re.compile(
    r"(?i)^ ?(?:[万萬億亿千百十兆만억천백]|mil\b|mill|mio\b|mrd\b|tausend|hundert|dutzend|тыс|млн|млрд|миллион|duizend"
    r"|tysi|milion|bin\b|nghìn|triệu|ribu|juta|ألف|مليون|हज़ार|लाख|करोड़|docena|douzaine|por cien|pour cent|prozent"
    r"|процент|per cento|por cento)"
)
_CALCULATED = re.compile(
    r"^ ?(?:[-−+*/×÷^=<>!]|mal|plus|minus|más|menos|moins|fois|加|减|乘|除|倍|以上|以下|未満|より)"
)
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""Digits, letters and marks as wide as a Chinese character -> those of ASCII."""
_LONGEST = 2_000
"""Characters of the sentence behind a phrase that are read."""


_PHRASES = [
    (
        language,
        re.compile(
            rf"(?:{language.noun})(?:(?P<denied>{language.denials})|(?:{language.links})(?: ?[:：])?|\** ?[:：])", re.I
        ),
        re.compile(rf"(?:{language.conditions})[^.。!！?？\n,，]*$", re.IGNORECASE),
    )
    for language in _LANGUAGES
]


def announced_in_other_languages(response: str) -> str | None:
    """Find what the last such phrase announces; None without a phrase, an empty text if it leaves a doubt.

    A comma is the decimal one where the language has it, unless three digits follow, which may be thousands.

    >>> announced_in_other_languages("所以答案是12。"), announced_in_other_languages("Die Antwort ist 3,5 Liter.")
    ('12', '3.5 Liter')
    >>> announced_in_other_languages("La respuesta no es 12."), announced_in_other_languages("12")
    ('', None)
    """
    text = re.sub(r"[^\S\n]+", " ", response.translate(_FULL_WIDTH))
    small = text.lower()
    matches = [
        (match.start(), match, language, condition)
        for language, phrase, condition in _PHRASES
        if any(stem in small for stem in language.stems.split())
        for match in phrase.finditer(text)
    ]
    for start, match, language, condition in sorted(matches, key=lambda entry: entry[0], reverse=True):
        if match["denied"]:
            return ""
        value = _VALUE.match(text, match.end())
        # "La respuesta es correcta." speaks of the answer that was announced before.
        if value is None or condition.search(text, max(0, start - 80), start):
            continue
        sentence = _SENTENCE.match(text, value.end(), value.end() + _LONGEST)
        tail = sentence.group(0) if sentence else ""
        read = _value(value, tail, language)
        if read is not None:
            return read
    return None


def _value(value: re.Match[str], tail: str, language: _Language) -> str | None:
    """Return the value with its unit; an empty text if its sentence leaves a doubt, None if it only supposes it."""
    rest = tail.lstrip("*_ ") if tail[:1] in "*_" else tail
    if _SUPPOSED_BEHIND.match(rest):
        return None
    clause = _CLAUSE.split(rest, maxsplit=1)[0]
    if (
        _QUESTION.search(tail)
        or _DENIED_BEHIND.search(clause)
        or _SECOND.search(rest)
        or _SCALED.match(clause)
        or _CALCULATED.match(clause)
        or any(map(str.isdigit, clause))
    ):
        return ""
    if value["letter"]:
        # "La respuesta es A veces" has a word; a choice stands alone.
        return value["letter"].strip("()") if not clause.strip(" *_.。") or not clause.strip()[:1].isascii() else ""
    number = value["math"] or value["number"]
    if value["number"]:
        number = re.sub(r"(?<=\d) (?=\d{3})", "", number)
        if language.decimal_comma and re.fullmatch(r"\D*\d{1,3}(?:\.\d{3})*,(?:\d{1,2}|\d{4,})%?", number):
            number = number.replace(".", "").replace(",", ".")
    unit = clause.strip(" *_")
    return f"{number} {unit}" if unit.isascii() and unit[:1].isalpha() and len(unit) <= 40 else number
