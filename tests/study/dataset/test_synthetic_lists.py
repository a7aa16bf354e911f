"""Lists of scored responses that are made of questions and answers alone."""

from itertools import product

import pytest

from automedeval.records import Case, RecordError, Response
from automedeval.records.language import normalise
from automedeval.study.dataset.synthetic_lists import lists_of_pairs

POINTS = {"answer-right": 5, "answer-cut": 4, "answer-near": 2, "answer-far": 1}


def qa(topic: str, kind: str, answer: str) -> Case:
    return Case(f"{topic} {kind}", f"What about {kind} of {topic}?", (), answer, topic)


def test_pairs_of_question_and_answer_become_lists():
    topics = ("Adult Gout", "Childhood Gout", "Acne", "Croup")
    pairs = []
    for topic, kind in product(topics, ("symptoms", "causes", "treatment")):
        pairs.append(qa(topic, kind, f"{kind.title()} of {topic}. " * 40))
    lonely = [qa("Measles", "causes", "A virus.")]
    lonely += [qa("Mumps", kind, "A virus.") for kind in ("a", "b")]
    made = lists_of_pairs([*pairs, *lonely])
    assert [case.id for case, _ in made] == [case.id for case in pairs]
    assert len({tuple(case.models) for case, _ in made}) > 2
    for case, scores in made:
        assert scores == [POINTS[model] for model in case.models]
        texts = {response.model: response.text for response in case.responses}
        right = texts["answer-right"]
        near = texts["answer-near"]
        assert case.reference.startswith(right)
        assert right.startswith(texts["answer-cut"])
        assert case.topic in near
        assert right != near
        # no gout of children for adults
        of_far = normalise(texts["answer-far"]).split()
        assert set(normalise(case.topic).split()).isdisjoint(of_far)
        assert max(len(text.split()) for text in texts.values()) <= 100
    assert lists_of_pairs([*pairs, *lonely]) == made


def test_no_text_stands_twice_among_the_responses_of_a_list():
    answers = {"Rest. Drink a lot of water every single day.": "Gout", "Rest!": "Gout"}
    answers |= {"Rest.": "Acne", "Oil.": "Acne", "REST": "Croup", "A virus.": "Croup"}
    for draw in range(8):  # the draw of a case depends on its id
        cases = [qa(topic, f"part {draw} {text}", text) for text, topic in answers.items()]
        for case, _ in lists_of_pairs(cases):
            words = [normalise(response.text) for response in case.responses]
            assert len(set(words)) == len(words), case


def test_a_case_with_responses_is_refused():
    case = Case("c0", "Why?", (Response("m", "So."),), "So.", "Gout")
    with pytest.raises(RecordError, match="case 'c0' has responses;"):
        lists_of_pairs([case])
