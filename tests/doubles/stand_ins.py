"""Stand-ins for what the user brings, made of the packaged sample; none of them says anything about a judge.

Questions are the sample's, each in the layout of the public set in whose place it stands; books are the sample's two; ratings
are the sample's simulated ones, under the names of the cases and models that they stand for. Checkpoints have two layers of
random weights.
"""

import hashlib
import itertools
import json
import os
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from doubles.tiny_model import byte_level_tokens
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
VERIFIERS = ("simulated-chief-1", "simulated-chief-2")
DOCTORS = tuple(
    f"simulated-{role}"
    for role in ("attending-1", "attending-2", "attending-3", "chief-1", "chief-2")
)
MASTERS = tuple(f"simulated-master-{number}" for number in (1, 2, 3))
CHECKS = ("knowledge", "attribution", "fluency")
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
    makers = {
        "wikidoc": lambda: _write(scratch, _wikidoc(place)),
        "medtext": lambda: _write(scratch, _medtext(place)),
        "book": lambda: shutil.copytree(
            place / SAMPLE / "books",
            scratch,
            ignore=lambda _, names: set(names) - {f"{target.name}.md"},
        ),
        "llama": lambda: _llama(scratch, place),
        "chat_llama": lambda: _llama(scratch, place, chat=True),
        "bert": lambda: _bert(scratch, place, layers=17),  # as bert-score's table has it
        "encoder": lambda: _encoder(scratch, place),
        "checks": lambda: _write(scratch, checks(read_records(rated, Verdict))),
        "ratings": lambda: _write(scratch, _ratings(rated, place)),
        "bart": lambda: _bart(scratch),
        "verdict_ratings": lambda: _write(scratch, _verdict_ratings(rated, judges[:1])),
        "preferences": lambda: _write(scratch, _preferences(rated, judges)),
    }
    makers[kind]()
    os.replace(scratch, target)


def decide(queue: Path, decided: Path) -> None:
    """Decide about every case of a jury's queue: one half of the verdicts stay, the others get other points."""
    scratch = decided.with_name(f".{decided.name}.making")
    _write(scratch, map(_decision, _read(queue)))
    os.replace(scratch, decided)


def _decision(line: dict[str, Any]) -> dict[str, Any]:
    decided = line | {"annotator": VERIFIERS[0], "decision": "keep"}
    if _number(line["case_id"]) % 2:
        return decided
    points = {index: 1 + _number(f"{line['case_id']} {index}") % 5 for index in line["order"]}
    steps = [
        f"Step {slot + 1}: Doctor {slot} answers in part." for slot in range(1, len(points) + 1)
    ]
    rationale = "\n".join(["Analyze:", "Step 1: The patient asks for advice.", *steps])
    scores = [points.get(index) for index in range(len(line["models"]))]
    return decided | {"decision": "revise", "rationale": rationale, "scores": scores}


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def _write(file: Path, records: Iterator[dict[str, Any]]) -> None:
    file.write_text(
        "".join(json.dumps(record) + "\n" for record in records), encoding="utf-8", newline="\n"
    )


def _wikidoc(place: Path) -> Iterator[dict[str, Any]]:
    words = [word for case in _read(place / TEXTS) for word in case["reference"].split()]
    drawn = random.Random(0)  # of the sample's words, in no order: no two texts share a passage
    longest = WORDS["long answer"]
    short = itertools.islice(itertools.cycle(WORDS["answer"]), CASES - len(longest))
    for lengths in zip(itertools.cycle(WORDS["question"]), [*short, *longest]):
        question, answer = (" ".join(drawn.choices(words, k=length)) for length in lengths)
        yield {
            "instruction": "Answer this question truthfully",
            "input": f"What is {question}?",
            "output": answer,
        }
    # One row that the exclusion patterns reject (Appendix A).
    rejected = {"input": "The text is to be rephrased.", "output": "No text."}
    yield {"instruction": "Answer this question truthfully"} | rejected


def _medtext(place: Path) -> Iterator[dict[str, Any]]:
    for case in _read(place / SAMPLE / "test_cases.jsonl")[:TEST_CASES]:
        yield {"Prompt": case["question"], "Completion": case["reference"]}


def checks(verdicts: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield two chiefs' checks of every valid verdict, who agree: the criteria that fail are distributed as in FAILED."""
    valid = [verdict for verdict in verdicts if verdict.valid]
    drawn = sorted(valid, key=lambda verdict: _number(f"{verdict.case_id} {verdict.judge}"))
    patterns = [pattern for pattern, number in FAILED.items() for _ in range(number)]
    for rank, verdict in enumerate(drawn):
        failed = patterns[(2 * rank + 1) * len(patterns) // (2 * len(drawn))]
        about = {
            "case_id": verdict.case_id,
            "judge": verdict.judge,
            "verdict_digest": verdict.digest,
            "role": "chief",
        }
        for annotator, criterion in itertools.product(VERIFIERS, CHECKS):
            score = int(criterion not in failed)
            who = {"annotator": annotator, "criterion": criterion}
            yield about | who | {"score": score, "comment": None}


def _number(key: str) -> int:
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16)


def _shown(file: Path, judge: str) -> dict[str, Any]:
    """Return a judge's verdict on each case that physicians are shown: the first by run and order with a rationale."""
    shown: dict[str, Any] = {}
    for verdict in read_records(file, Verdict):
        if verdict.judge == judge and verdict.valid and verdict.rationale:
            first = shown.setdefault(verdict.case_id, verdict)
            if (verdict.run, verdict.order) < (first.run, first.order):
                shown[verdict.case_id] = verdict
    return shown


def _verdict_ratings(file: Path, judges: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield five doctors' ratings of the judges' verdicts."""
    for judge in judges:
        for case, verdict in _shown(file, judge).items():
            about = {"case_id": case, "judge": judge, "verdict_digest": verdict.digest}
            for annotator, criterion in itertools.product(DOCTORS, CHECKS):
                score = 1 + _number(f"{case} {judge} {annotator} {criterion}") % 5
                who = {"annotator": annotator, "role": annotator.split("-")[1]}
                said = {"criterion": criterion, "score": score, "comment": None, "tags": []}
                yield about | who | said


def _preferences(file: Path, judges: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield three master candidates' preferences between two judges' verdicts."""
    shown, other = (_shown(file, judge) for judge in judges)
    for case in (case for case in shown if case in other):
        for annotator, criterion in itertools.product(MASTERS, CHECKS):
            choice = (*judges, "tie")[_number(f"{case} {annotator} {criterion}") % 3]
            who = {"annotator": annotator, "role": "master_candidate"}
            yield {
                "case_id": case,
                "judges": list(judges),
                **who,
                "criterion": criterion,
                "choice": choice,
            }


def _ratings(cases: Path, place: Path) -> Iterator[dict[str, Any]]:
    """Yield the sample's ratings of its test cases as ratings of these cases: case by case, response by response."""
    rated: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for rating in _read(place / SAMPLE / "test_ratings.jsonl"):
        rated.setdefault((rating["case_id"], rating["model"]), []).append(rating)
    first = (
        50 if "calibration" in cases.parts else 0
    )  # so that they rise with the likelihoods of a stand-in
    ratings = itertools.islice(itertools.cycle(rated.values()), first, None)
    for case in _read(cases):
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
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(int(hashlib.sha256(folder.name.encode()).hexdigest()[:8], 16))
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), max_position_embeddings=window, **SHAPES["llama"], **ids
        )
    )
    for parameter in network.parameters():  # large enough that texts differ
        parameter.data.normal_(0.0, 0.3)
    if chat:  # it may write 4,096 tokens: one that ends after some hundred is as good
        network.lm_head.weight.data[ids["eos_token_id"]] *= 3
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

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    trainer = trainers.WordPieceTrainer(
        vocab_size=2000, special_tokens=special, show_progress=False
    )
    backend.train([str(place / TEXTS)], trainer)
    ends = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    names = {f"{token.strip('[]').lower()}_token": token for token in special}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=256, **names)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    shape = SHAPES["bert"] | {"num_hidden_layers": layers}
    BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(folder)


def _bart(folder: Path) -> None:
    from doubles.tiny_bart import build_bart  # slow to import

    build_bart(folder, window=WINDOW)
