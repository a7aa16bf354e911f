"""recipes/train_checker.py by its command: what is held out and left out, the adapter, a second start, bad input."""

import json
from pathlib import Path

from doubles.agreement_study import read, write
from programs import ENCODER, error_line, flags, needs_encoder, run_recipe, succeeded

pytestmark = needs_encoder
LABELS = ("supported", "contradicted", "not_found")


def arguments(folder: Path) -> list[object]:
    (folder / "trials").mkdir()
    rows = [
        {"evidence": f"Trial {at} gave drug {at} daily.", "claim": f"Drug {at} was daily.", "pmc": str(at)}
        | {"label": LABELS[at % 3]}
        for at in range(60)
    ]
    rows.append(rows[0] | {"evidence": "Another text.", "claim": "A Claim of a test"})
    write(folder / "trials" / "pairs.jsonl", rows)
    write(folder / "test.jsonl", [{"evidence": "Text.", "claim": "A claim of a test.", "label": "supported"}])
    text = "Aspirin is safe for most adults who take it daily. It does not help children with a viral fever at all."
    write(folder / "books.jsonl", [{"id": f"b{at}", "text": text} for at in range(30)])
    files = {"pairs": folder / "trials", "evaluation_pairs": folder / "test.jsonl", "books": folder / "books.jsonl"}
    training = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": "true", "report_to": "none"}
    return flags(**files, held_out="trials", contrast=20, encoder=ENCODER, **training, output_dir=folder / "out")


def test_it_trains_holds_out_documents_and_leaves_tests_out(tmp_path: Path) -> None:
    options = arguments(tmp_path)
    done = succeeded(run_recipe("train_checker", *options))
    assert (tmp_path / "out" / "adapter" / "adapter_model.safetensors").is_file()
    assert "text of a test: 1" in done.stdout
    held_out = read(tmp_path / "out" / "held_out.jsonl")
    trials = [row for row in held_out if row["source"] == "trials"]
    assert 3 <= len(trials) <= 25
    assert {row["source"] for row in held_out} <= {"trials", "contrast"}
    record = json.loads((tmp_path / "out" / "training" / "record.json").read_text())
    trained = sum(count for name, count in record["pairs"].items() if name.startswith("trials"))
    assert trained == 60 - len(trials)
    assert sum(count for name, count in record["pairs"].items() if name.startswith("contrast")) == 20
    again = succeeded(run_recipe("train_checker", *options))
    assert "finished already" in again.stdout


def test_pairs_that_are_none_get_one_line(tmp_path: Path) -> None:
    options = arguments(tmp_path)
    (tmp_path / "trials" / "pairs.jsonl").write_text('{"claim": "a"}\n')
    done = run_recipe("train_checker", *options)
    assert done.returncode == 1
    assert "not pairs of evidence, claim and label" in error_line(done)
