"""The tool ``search``: the passages of a local corpus that fit a query best, by BM25 (Robertson and Zaragoza, 2009)."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlinf.base.plain_text import UNSPACED
from rlinf_envs import datasets
from rlinf_envs.errors import DatasetError, SettingError
from rlinf_envs.tools.tool import Tool, tool_of

_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+")
"""Each Chinese or Japanese character is a word of its own."""
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_K1, _B = 1.5, 0.75


class Index:
    """An inverted index over texts: word -> indices of texts and weights, which is all that scoring needs."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(words_of(text)) for text in texts]
        lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
        mean = max(1.0, float(lengths.mean()))
        indices: dict[str, list[int]] = {}
        frequencies: dict[str, list[int]] = {}
        for position, count in enumerate(counts):
            for word, times in count.items():
                indices.setdefault(word, []).append(position)
                frequencies.setdefault(word, []).append(times)
        self._size = len(texts)
        self._postings: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        for word, where in indices.items():
            at, times_there = np.array(where), np.array(frequencies[word], dtype=np.float64)
            rarity = math.log(1.0 + (self._size - len(where) + 0.5) / (len(where) + 0.5))
            saturated = times_there * (_K1 + 1) / (times_there + _K1 * (1 - _B + _B * lengths[at] / mean))
            self._postings[word] = at, rarity * saturated

    def best(self, query: str, count: int) -> list[int]:
        """Return the indices of the texts that fit best, the best first; equals in their order.

        Fewer if no more fit at all."""
        scores = np.zeros(self._size)
        for word in words_of(query):
            if word in self._postings:
                at, weights = self._postings[word]
                scores[at] += weights
        order = np.argsort(-scores, kind="stable")[:count]
        return [int(passage) for passage in order if scores[passage] > 0]


def words_of(text: str) -> list[str]:
    """Return the words in lower case, without accents.

    >>> words_of("Zürich's CAFÉ 東京")
    ['zurich', 's', 'cafe', '東', '京']
    """
    return _WORD.findall(_ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold())))


def search(
    *, path: str, text_field: str = "text", title_field: str | None = None, count: int = 3, chars: int = 600
) -> Tool:
    """
    Args:
        path: the corpus: a JSONL, JSON or Parquet file, a folder of them, or a hub name.
        text_field: of a row: the passage. title_field: put in front of it.
        count: passages of an answer. chars: shown of each.

    Raises:
        SettingError: count or chars below 1. DatasetError: the corpus cannot be read.
    """
    if count < 1 or chars < 1:
        raise SettingError(f"tool search: count and chars must be at least 1, got {count} and {chars}")
    passages: list[str] = []
    for record in datasets.select(path, None).records:
        row = record.row
        if row is None or not isinstance(row.get(text_field), str):
            raise DatasetError(f"{record.location}: {record.problem or f'there is no text in the field {text_field}'}")
        title = f"{row[title_field]}: " if title_field is not None and row.get(title_field) else ""
        passages.append(title + row[text_field])
    if not passages:
        raise DatasetError(f"{path}: the corpus is empty")
    index = Index(passages)

    def find(query: str) -> str:
        """Searches a collection of texts and returns the passages that fit best.

        Args:
            query: words to look for.
        """  # noqa: D401 - policies read it in prompts
        results = [passages[position] for position in index.best(query, count)]
        shown = [
            f"[{number}] {text[:chars]}{' ...' if len(text) > chars else ''}" for number, text in enumerate(results, 1)
        ]
        return "\n".join(shown) or "nothing was found"

    return tool_of(find, name="search")
