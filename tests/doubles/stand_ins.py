"""Stand-ins for what the user brings, made of the packaged sample; none of them says anything about a judge.

Questions are the sample's, each in the layout of the public set in whose place it stands; books are the sample's two; ratings
are the sample's simulated ones, under the names of the cases and models that they stand for. Checkpoints have two layers of
random weights.
"""

import os
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

from doubles.study_endpoint import number_of
from doubles.tiny_model import byte_level_tokens
from factories import Json, read, write
from tables import rows_of

from automedeval.records import Verdict, read_records

TABLES = rows_of(__file__)
SAMPLE = Path("src/automedeval/sample")
TEXTS = SAMPLE / "train_cases.jsonl"  # what the tokenizers learn from
CASES = 60  # questions in the place of wikidoc
TEST_CASES = 12  # questions in the place of MedText
WORDS = TABLES["words"]
WINDOW = 2048  # tokens, as LLaMA has
CHAT_WINDOW = 16384  # of a model with a chat template of its own, such as DeepSeek-R1-Distill
SHAPES = TABLES["shapes"]
WIDTH = SHAPES["bert"]["hidden_size"]  # of an encoder's vectors
VERIFIERS = TABLES["verifiers"]
DOCTORS = TABLES["doctors"]
MASTERS = TABLES["masters"]
CHECKS = TABLES["checks"]
FAILED = {tuple(criteria): count for criteria, count in TABLES["failed"]}
BROUGHT: dict[str, tuple[str, str | None]] = TABLES["brought"]


def stand_in(path: str, place: Path, judges: Sequence[str] = ()) -> None:
    """Make the stand-in of a path of BROUGHT in a rehearsal's folder; it appears there only when it is complete.

    Args:
        judges: whose verdicts people rate or compare in it.
    """
    kind, of = BROUGHT[path]
    rated = place / str(of)
    target = place / path
    scratch = target.with_name(f".{target.name}.making")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    match kind:
        case "book":
            scratch.mkdir()
            shutil.copy(place / SAMPLE / "books" / f"{target.name}.md", scratch)
        case "llama":
            _llama(scratch, place)
        case "chat_llama":
            _llama(scratch, place, chat=True)
        case "bert":
            _bert(scratch, place, layers=17)  # as bert-score's table has it
        case "encoder":
            _encoder(scratch, place)
        case "bart":
            _bart(scratch)
        case _:
            write(scratch, _records(kind, place, rated, judges))
    os.replace(scratch, target)


def _records(kind: str, place: Path, rated: Path, judges: Sequence[str]) -> Iterator[dict]:
    """Return the lines of a stand-in that is a file."""
    match kind:
        case "wikidoc":
            return _wikidoc(place)
        case "medtext":
            return _medtext(place)
        case "checks":
            return checks(read_records(rated, Verdict))
        case "ratings":
            return _ratings(rated, place)
        case "verdict_ratings":
            return _verdict_ratings(rated, judges[0])
        case "preferences":
            return _preferences(rated, judges)
    raise ValueError(kind)


def decide(queue: Path, decided: Path) -> None:
    """Decide about every case of a jury's queue: one half of the verdicts stay, the others get other points."""
    scratch = decided.with_name(f".{decided.name}.making")
    write(scratch, map(_decision, read(queue)))
    os.replace(scratch, decided)


def _decision(line: Json) -> Json:
    decided = line | {"annotator": VERIFIERS[0], "decision": "keep"}
    if number_of(line["case_id"]) % 2:
        return decided
    steps = ["Analyze:", "Step 1: The patient asks for advice."]
    scores = [None] * len(line["models"])
    for slot, index in enumerate(line["order"], 1):
        scores[index] = 1 + number_of(f"{line['case_id']} {index}") % 5
        steps.append(f"Step {slot + 1}: Doctor {slot} answers in part.")
    return decided | {"decision": "revise", "rationale": "\n".join(steps), "scores": scores}


def _wikidoc(place: Path) -> Iterator[Json]:
    words = []
    for case in read(place / TEXTS):
        words += case["reference"].split()
    drawn = random.Random(0)  # of the sample's words, in no order: no two texts share a passage
    longest = WORDS["long answer"]
    short = islice(cycle(WORDS["answer"]), CASES - len(longest))
    instruction = {"instruction": "Answer this question truthfully"}
    for asked, answered in zip(cycle(WORDS["question"]), [*short, *longest]):
        question = " ".join(drawn.choices(words, k=asked))
        answer = " ".join(drawn.choices(words, k=answered))
        yield instruction | {"input": f"What is {question}?", "output": answer}
    # One row that the exclusion patterns reject (Appendix A).
    yield instruction | {"input": "The text is to be rephrased.", "output": "No text."}


def _medtext(place: Path) -> Iterator[Json]:
    for case in read(place / SAMPLE / "test_cases.jsonl")[:TEST_CASES]:
        yield {"Prompt": case["question"], "Completion": case["reference"]}


def checks(verdicts: Iterable[Any]) -> Iterator[Json]:
    """Yield two chiefs' checks of every valid verdict, who agree: the criteria that fail are distributed as in FAILED."""
    valid = [verdict for verdict in verdicts if verdict.valid]
    drawn = sorted(valid, key=lambda verdict: number_of(f"{verdict.case_id} {verdict.judge}"))
    patterns = []
    for pattern, number in FAILED.items():
        patterns += [pattern] * number
    for rank, verdict in enumerate(drawn):
        middle = (2 * rank + 1) * len(patterns) // (2 * len(drawn))
        failed = patterns[middle]
        about = _about(verdict) | {"role": "chief"}
        for annotator, criterion in product(VERIFIERS, CHECKS):
            score = int(criterion not in failed)
            who = {"annotator": annotator, "criterion": criterion}
            yield about | who | {"score": score, "comment": None}


def _about(verdict: Any) -> Json:
    """Return the fields by which people's lines name the verdict that they are about."""
    about = {"case_id": verdict.case_id, "judge": verdict.judge}
    return about | {"verdict_digest": verdict.digest}


def _shown(file: Path, judge: str) -> Json:
    """Return a judge's verdict on each case that physicians are shown: the first by run and order with a rationale."""
    shown: Json = {}
    for verdict in read_records(file, Verdict):
        if verdict.judge == judge and verdict.valid and verdict.rationale:
            first = shown.setdefault(verdict.case_id, verdict)
            if (verdict.run, verdict.order) < (first.run, first.order):
                shown[verdict.case_id] = verdict
    return shown


def _verdict_ratings(file: Path, judge: str) -> Iterator[Json]:
    """Yield five doctors' ratings of a judge's verdicts."""
    for case, verdict in _shown(file, judge).items():
        for annotator, criterion in product(DOCTORS, CHECKS):
            score = 1 + number_of(f"{case} {judge} {annotator} {criterion}") % 5
            who = {"annotator": annotator, "role": annotator.split("-")[1]}
            said = {"criterion": criterion, "score": score, "comment": None, "tags": []}
            yield _about(verdict) | who | said


def _preferences(file: Path, judges: Sequence[str]) -> Iterator[Json]:
    """Yield three master candidates' preferences between two judges' verdicts."""
    first, second = (_shown(file, judge) for judge in judges)
    choices = (*judges, "tie")
    for case in first:
        if case not in second:
            continue
        for annotator, criterion in product(MASTERS, CHECKS):
            choice = choices[number_of(f"{case} {annotator} {criterion}") % 3]
            who = {"annotator": annotator, "role": "master_candidate"}
            said = {"criterion": criterion, "choice": choice}
            yield {"case_id": case, "judges": list(judges)} | who | said


def _ratings(cases: Path, place: Path) -> Iterator[Json]:
    """Yield the sample's ratings of its test cases as ratings of these cases: case by case, response by response."""
    rated: dict[tuple[str, str], list] = {}
    for rating in read(place / SAMPLE / "test_ratings.jsonl"):
        rated.setdefault((rating["case_id"], rating["model"]), []).append(rating)
    # So that they rise with the likelihoods of a stand-in.
    first = 50 if "calibration" in cases.parts else 0
    ratings = islice(cycle(rated.values()), first, None)
    for case in read(cases):
        for response in case["responses"]:
            for rating in next(ratings):
                yield rating | {"case_id": case["id"], "model": response["model"]}


def _llama(folder: Path, place: Path, chat: bool = False) -> None:
    """Save a Llama of two layers and random weights; the name of its folder decides the weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    backend = byte_level_tokens("<unk>", "<s>", "</s>", size=2000)
    window = CHAT_WINDOW if chat else WINDOW
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=window, **TABLES["tokens"]
    )
    if chat:
        template = place / "src/automedeval/models/templates/chat_template.jinja"
        tokenizer.chat_template = template.read_text(encoding="utf-8")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(number_of(folder.name))
    shape = SHAPES["llama"] | {"vocab_size": len(tokenizer), "max_position_embeddings": window}
    config = LlamaConfig(**shape)
    network = LlamaForCausalLM(config)
    for parameter in network.parameters():  # large enough that texts differ
        parameter.data.normal_(0.0, 0.3)
    if chat:  # it may write 4,096 tokens: one that ends after some hundred is as good
        network.lm_head.weight.data[config.eos_token_id] *= 3
    network.save_pretrained(folder)


def _encoder(folder: Path, place: Path) -> None:
    """Save an encoder of sentence-transformers whose vectors are means over tokens; its folder says so."""
    from sentence_transformers import SentenceTransformer, models

    network = folder.with_name(f"{folder.name}.bert")
    _bert(network, place)
    modules = [models.Transformer(str(network)), models.Pooling(WIDTH)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    shutil.rmtree(network)


def _bert(folder: Path, place: Path, layers: int = 2) -> None:
    """Save a BERT with random weights."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = list(TABLES["bert tokens"].values())
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    options = {"vocab_size": 2000, "special_tokens": special, "show_progress": False}
    trainer = trainers.WordPieceTrainer(**options)
    backend.train([str(place / TEXTS)], trainer)
    ends = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    template = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    backend.post_processor = template
    names = TABLES["bert tokens"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=256, **names)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    shape = SHAPES["bert"] | {"num_hidden_layers": layers}
    config = BertConfig(vocab_size=len(tokenizer), **shape)
    BertModel(config).save_pretrained(folder)


def _bart(folder: Path) -> None:
    from doubles.tiny_bart import build_bart  # slow to import

    build_bart(folder, window=WINDOW)
