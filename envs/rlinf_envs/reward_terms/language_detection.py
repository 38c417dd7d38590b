"""The language of a text: by its script, and by its most common words among languages of one script."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

SCRIPTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "sv", "fi", "tr", "vi", "id", "sw"), frozenset({"LATIN"})
    ),
    **dict.fromkeys(("ru", "uk", "bg"), frozenset({"CYRILLIC"})),
    **dict.fromkeys(("ar", "fa", "ur"), frozenset({"ARABIC"})),
    **dict.fromkeys(("hi", "mr", "ne"), frozenset({"DEVANAGARI"})),
    "el": frozenset({"GREEK"}),
    "zh": frozenset({"CJK"}),
    "ja": frozenset({"CJK", "HIRAGANA", "KATAKANA"}),
    "ko": frozenset({"HANGUL"}),
    "he": frozenset({"HEBREW"}),
    "th": frozenset({"THAI"}),
    "bn": frozenset({"BENGALI"}),
    "ta": frozenset({"TAMIL"}),
    "te": frozenset({"TELUGU"}),
    "kn": frozenset({"KANNADA"}),
    "gu": frozenset({"GUJARATI"}),
    "pa": frozenset({"GURMUKHI"}),
    "ml": frozenset({"MALAYALAM"}),
}
"""Language code -> scripts (first word of the Unicode character name) that its text is written in."""
_COMMON: Mapping[str, frozenset[str]] = {
    code: frozenset(words.split())
    for code, words in {
        "en": "the of and to in is that it was for on are with as be this have from you not",
        "de": "der die das und ist nicht ein eine zu den mit von im auf für sich auch es ich dem",
        "fr": "le la les des et est un une du que dans pour pas qui sur il au ce avec je",
        "es": "el la los las de y que en es un una por con para no se del como más lo",
        "it": "il la di che e è un una per non in con del della sono gli le si anche i",
        "pt": "o a os as de e que em um uma não para com do da se é por mais no na",
        "nl": "de het een en van is dat niet in te op voor zijn met die er ook aan ik",
        "pl": "i w na nie się z to jest do że jak o po co ale dla od tak są przez",
        "sv": "och att det i en är som på av för med den inte till ett har om jag de var",
        "fi": "ja on ei että se hän oli mutta kun niin myös tai olla joka kuin ovat sen tämä",
        "tr": "ve bir bu için da de ile çok ne olan daha gibi var olarak ama en ben kadar",
        "vi": "và của là có không cho được một trong các với những người này khi đã để tôi",
        "id": "yang dan di ini itu dengan untuk dari tidak dalam adalah pada akan juga ke saya",
        "sw": "na ya wa kwa ni katika la za kuwa hii lakini kama cha yake hiyo au sana watu",
        "ru": "и в не на что это как с по для я он но из у за от же так все",
        "uk": "і в не на що це як з до та у я він але за від є для ми ви",
        "bg": "и в не на че е да се за от са с по това като го но към който ще",
        "ar": "في من على أن إلى هذا التي عن ما لا هو مع هذه الذي كان أو هي",
        "fa": "و در به از که این را است با برای آن یک می شود خود ها تا کند",
        "ur": "کے میں کی ہے اور سے کا کو نے کہ پر ہیں یہ ایک نہیں بھی تھا",
        "hi": "है के में की और से का को ने कि पर हैं यह एक नहीं भी था",
        "mr": "आहे आणि या हे ते व आहेत मी तो ही होते नाही आपल्या केले तर असे",
        "ne": "छ र को मा हो लाई छन् यो पनि गर्न भने तथा थियो हुन्छ एक त्यो",
    }.items()
}
_WORD = re.compile(r"[^\W\d_]+[^\s\d_.,;:!?\"()]*")
_MARKUP = re.compile(
    r"```[^`]*```|`[^`\n]*`|\$[^$\n]*\$|\\\((?:[^\n\\]|\\[^()\n])*\\\)|\\(?:begin|end)\{[^{}\n]*\}|\\[A-Za-z]+"
    r"|https?://[!-~]+|</?[A-Za-z][\w-]*>|\d\s?[A-Za-zµμ]{1,2}(?![^\W_])|(?<![^\W_])[A-Za-zΑ-ω](?![^\W\d_])"
)
"""What is written alike in every language: code, formulas, addresses, tags, units and letters of variables."""


def script_share(text: str, code: str) -> float:
    """Return the share of letters of ``text`` in the scripts of the language ``code``; 1 if there are no letters."""
    letters = _letters(_MARKUP.sub(" ", text)) or _letters(text)
    return sum(script in SCRIPTS[code] for script in letters) / len(letters) if letters else 1.0


def _letters(text: str) -> list[str]:
    return [_script(char) for char in text if char.isalpha()]


def is_in_language(text: str, code: str) -> bool:
    """Whether ``text`` is mainly in the language ``code``, as far as its script and common words show it."""
    if script_share(text, code) <= 0.5:
        return False
    counts = Counter(_WORD.findall(text.lower()))
    hits = {
        other: sum(counts[word] for word in common)
        for other, common in _COMMON.items()
        if SCRIPTS[other] == SCRIPTS.get(code)
    }
    return hits.get(code, 0) == max(hits.values(), default=0)


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    name = unicodedata.name(unicodedata.normalize("NFKC", char)[0], "UNKNOWN")
    return name.removeprefix("COMBINING ").replace("IDEOGRAPHIC", "CJK").split(" ")[0].split("-")[0]
