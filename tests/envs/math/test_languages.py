"""Tests for answers that other languages announce: "答案是12", "La respuesta no es 12", "Ответ: 12 или 13"."""

import pytest
from rlinf_envs.math.grading import grade
from rlinf_envs.math.languages import announced_in_other_languages

RIGHT = [
    ("12", "答案是12。"),
    ("12", "所以答案是：12"),
    ("12", "答案为 12 个苹果。"),
    ("12", "因此，最终答案是 **12**。"),
    ("12", "答案：12"),
    ("12", "答案是$12$。"),
    ("12", "正確答案是１２。"),
    ("12", "答案是12，因为15-3=12。"),
    ("12", "答えは12です。"),
    ("12", "答え：12"),
    ("12", "よって、答えは 12 個です。"),
    ("12", "正解は12。"),
    ("12", "따라서 답은 12입니다."),
    ("12", "정답: 12"),
    ("12", "정답은 12개입니다."),
    ("12", "Ответ: 12"),
    ("12", "Ответ: 12 яблок."),
    ("12", "Ответ равен 12."),
    ("12", "Таким образом, ответ — 12."),
    ("12", "La respuesta es 12."),
    ("12", "La respuesta es 12 manzanas."),
    ("12", "Por lo tanto, la respuesta final es: 12"),
    ("12", "Respuesta: 12"),
    ("12", "La réponse est 12."),
    ("12", "La réponse est donc 12 pommes."),
    ("12", "Réponse : 12"),
    ("12", "Le résultat est 12, car 15 - 3 = 12."),
    ("12", "Die Antwort ist 12."),
    ("12", "Die Antwort lautet: 12"),
    ("12", "Antwort: 12 Äpfel"),
    ("12", "Das Ergebnis beträgt 12."),
    ("12", "A resposta é 12."),
    ("12", "La risposta è 12."),
    ("12", "Het antwoord is 12."),
    ("12", "Odpowiedź: 12"),
    ("12", "Odpowiedź to 12."),
    ("12", "Cevap: 12"),
    ("12", "Cevap 12'dir."),
    ("12", "Đáp án là 12."),
    ("12", "Jawabannya adalah 12."),
    ("12", "الجواب هو 12"),
    ("12", "उत्तर: 12"),
    ("12", "उत्तर 12 है।"),
    ("12", "La respuesta es 12. ¡Es correcta!"),
    ("12", "Die Antwort ist 12. Die Antwort ist richtig."),
    ("12", "答案是12。这个答案是正确的。"),
    ("3.5", "Die Antwort ist 3,5."),
    ("B", "答案是B。"),
    ("B", "答案选B"),
    ("B", "正确选项是 (B)"),
    ("B", "La respuesta correcta es B."),
    ("1/2", "答案是1/2。"),
    ("-3", "Ответ: -3"),
    ("\\frac{1}{2}", "答案是$\\frac{1}{2}$。"),
    ("1234", "La réponse est 1 234."),
    ("25\\%", "答案是25%。"),
    ("C", "Die richtige Antwort ist C."),
]
DOUBTFUL = [
    ("12", "答案不是12。"),
    ("12", "答案是12吗？"),
    ("12", "如果答案是12，那么我们错了。"),
    ("12", "答案是12或13。"),
    ("12", "答案是12加3。"),
    ("12", "答案是12万。"),
    ("12", "答えは12ではありません。"),
    ("12", "答えは12ですか？"),
    ("12", "もし答えは12なら困る。"),
    ("12", "답은 12가 아닙니다."),
    ("12", "답은 12입니까?"),
    ("12", "Ответ не 12."),
    ("12", "Ответ: 12 или 13"),
    ("12", "Ответ: 12 тысяч"),
    ("12", "La respuesta no es 12."),
    ("12", "¿La respuesta es 12?"),
    ("12", "La respuesta es 12 o 13."),
    ("12", "La respuesta es 12 mil."),
    ("12", "La respuesta es 12 más 3."),
    ("12", "La réponse n'est pas 12."),
    ("12", "La réponse est-elle 12 ?"),
    ("12", "La réponse est 12 ou 13."),
    ("12", "La réponse est 12 millions."),
    ("12", "Die Antwort ist nicht 12."),
    ("12", "Die Antwort ist 12 oder 13."),
    ("12", "Ist die Antwort 12?"),
    ("12", "Die Antwort ist 12 Millionen."),
    ("12", "A resposta não é 12."),
    ("12", "La risposta non è 12."),
    ("12", "Het antwoord is niet 12."),
    ("12", "Cevap 12 değil."),
    ("12", "उत्तर 12 नहीं है।"),
    ("12", "答案是12-3。"),
    ("12", "答案是3。一共12个苹果，送了9个。"),
    ("12", "La respuesta es 3. Había 12 manzanas."),
    ("12", "الجواب ليس 12"),
    ("12", "Đáp án không phải là 12."),
    ("12", "Jawabannya bukan 12."),
    ("35", "Die Antwort ist 3,5."),
    ("3, 5", "Die Antwort ist 3,5."),
    ("A", "La réponse est A priori fausse."),
    ("A", "La respuesta es A veces."),
    ("12", "Le résultat est 120."),
]


@pytest.mark.parametrize(("answer", "response"), RIGHT)
def test_an_answer_is_read_behind_the_phrase_of_its_language(answer: str, response: str) -> None:
    assert grade(response, answer).status == "correct"


@pytest.mark.parametrize(("answer", "response"), DOUBTFUL)
def test_an_answer_that_is_denied_questioned_or_altered_is_not_read(answer: str, response: str) -> None:
    assert not grade(response, answer)


def test_a_box_and_english_come_first() -> None:
    assert grade("答案是3。\\boxed{12}", "12")
    assert grade("答案是3。The answer is 12.", "12")
    assert not grade("<think>答案是12。</think>", "12")


def test_a_supposed_answer_leaves_the_one_before() -> None:
    assert announced_in_other_languages("答案是12。如果答案是13，就错了。") == "12"
    assert announced_in_other_languages("La respuesta es 12. La respuesta es correcta.") == "12"
    assert announced_in_other_languages("Es sind 12.") is None


def test_thousands_are_not_taken_for_a_decimal() -> None:
    assert announced_in_other_languages("Die Antwort ist 1.234,5.") == "1234.5"
    assert announced_in_other_languages("Die Antwort ist 1,234.") == "1,234"
