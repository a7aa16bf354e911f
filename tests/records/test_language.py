"""Which texts count as English."""

import pytest
from programs import SAMPLE

from automedeval.records import Case, Response, read_cases
from automedeval.records.language import english_only, is_english

OTHERS = {
    "German": "Was soll ich tun, wenn mein Kind seit drei Tagen Fieber hat und nicht trinken will? Gehen Sie bitte sofort zum "
    "Arzt, wenn das Kind apathisch wirkt oder der Ausschlag nicht verschwindet.",
    "Spanish": "¿Qué debo hacer si mi hijo tiene fiebre desde hace tres días y no quiere beber? Vaya al médico de inmediato si "
    "el niño está apático o si la erupción no desaparece.",
    "French": "Que dois-je faire si mon enfant a de la fièvre depuis trois jours et refuse de boire ? Consultez un médecin si "
    "l'enfant est apathique ou si l'éruption ne disparaît pas.",
    "Chinese": "孩子发烧三天了,不想喝水,我应该怎么办?如果孩子精神不好或者皮疹按压不褪色,请立即去医院就诊。",
}


@pytest.mark.parametrize("language", OTHERS)
def test_other_languages_are_told_apart(language: str) -> None:
    assert is_english(OTHERS[language]) is False


def test_english_cases_get_no_warning_and_short_texts_are_not_told() -> None:
    cases = [*read_cases(SAMPLE / "test_cases.jsonl"), *read_cases(SAMPLE / "train_cases.jsonl")]
    assert english_only(cases, "baselines") == []
    assert is_english("Take aspirin.") is None


def test_the_warning_counts_the_cases_and_names_the_step() -> None:
    cases = [Case("k1", OTHERS["German"], (Response("a", "Ja."),)), Case("k2", "Why?", (Response("a", "No."),))]
    (note,) = english_only(cases, "baselines that count words")
    assert note.startswith("1 of 2 cases are not in English, for example 'k1': baselines that count words read English")
