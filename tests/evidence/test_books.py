"""Books to passages: what is read, where it is cut, and what is refused."""

import pytest
from doubles.agreement_study import write
from doubles.pdf import write_pdf
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row, refused, rows_of

from automedeval.evidence.books import Book, Passage, find_books
from automedeval.records import RecordError


def count(texts):
    """Count words, and every eight characters of a long one."""
    return [sum(-(-len(word) // 8) for word in text.split()) for text in texts]


def passages(file, tokens=200, overlap=40):
    return Book(file).passages(count, tokens, overlap)


def texts_of(found):
    return [passage.text for passage in found]


def written(file, text):
    file.write_text(text, encoding="utf-8")
    return file


@each_row("text, wanted")
def test_markdown_keeps_title_and_headings(text, wanted, tmp_path):
    """The only heading of the first level is the title; a file of several chapters is called after the file."""
    found = passages(written(tmp_path / "medical.md", text))
    assert [[passage.book, passage.section, passage.text] for passage in found] == wanted


def test_cuts_stand_at_the_ends_of_sentences_and_overlap(tmp_path):
    first = "Dr. Smith gave 2.5 mg, e.g. Aspirin. It helped (Fig. 3)."
    second = "Was it safe? Yes. The end came."
    file = written(tmp_path / "b.txt", f"{first} {second}")
    assert texts_of(passages(file, 11, 0)) == [first, second]
    assert texts_of(passages(file, 11, 4)) == [first, f"It helped (Fig. 3). {second}"]


WORDS = st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=30)
SENTENCE = st.lists(WORDS, min_size=1, max_size=12).map(" ".join).map(str.capitalize)
SENTENCES = st.lists(SENTENCE.map("{}.".format), min_size=1)


@given(SENTENCES, st.integers(1, 15), st.integers(0, 14))
def test_no_passage_exceeds_the_budget_and_nothing_is_lost(
    tmp_path_factory, texts, tokens, overlap
):
    whole = " ".join(texts)
    file = written(tmp_path_factory.mktemp("book") / "b.txt", whole)
    found = texts_of(passages(file, tokens, min(overlap, tokens - 1)))
    assert max(count(found)) <= tokens
    if overlap == 0 or tokens == 1:
        assert "".join(found).replace(" ", "") == whole.replace(" ", "")
        return
    for text, size in zip(texts, count(texts)):
        assert size > tokens or set(text.split()) <= set(" ".join(found).split())


def test_a_passage_is_known_by_its_content_alone(tmp_path):
    files = [written(tmp_path / name, "One.\n\nTwo.") for name in ("a.txt", "a.txt", "b.txt")]
    (first,), (again,), (of_another_book,) = map(passages, files)
    assert first.id == again.id != of_another_book.id


def test_json_lines_keep_book_section_and_page(tmp_path):
    file = write(tmp_path / "shelf.jsonl", rows_of(__file__)["json lines"])
    wanted = [
        Passage.of("B", "Heart > Drugs", 3, "One."),
        Passage.of("B", "Drugs", None, "Two."),
        Passage.of("shelf", "", None, "Three."),
    ]
    assert passages(file) == wanted


def test_pdf_keeps_pages_and_drops_running_heads(tmp_path):
    pages = [
        [f"Head {page}", f"Page {page} says some-", "thing.", str(page)] for page in range(1, 6)
    ]
    pages[3] = []
    book = Book(write_pdf(tmp_path / "b.pdf", pages))
    found = [(passage.page, passage.text) for passage in book.passages(count, 5, 0)]
    assert found == [(page, f"Page {page} says something.") for page in (1, 2, 3, 5)]
    assert book.pages_without_text == 1


def test_lines_of_the_same_form_at_both_ends_of_a_few_pages_stay(tmp_path):
    doses = [["Dose 1 mg.", "Daily.", "Dose 2 mg."], ["Dose 3 mg.", "Daily.", "Dose 4 mg."]]
    file = write_pdf(tmp_path / "b.pdf", [*doses, ["Text a."], ["Text b."], ["Text c."]])
    (text,) = texts_of(passages(file, 40, 0))
    assert text.startswith("Dose 1 mg. Daily. Dose 2 mg. Dose 3 mg. Daily. Dose 4 mg. Text a.")


@each_row("name, content, told")
def test_what_cannot_be_read_is_told(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with refused(tmp_path / name, told):
        passages(tmp_path / name)


def test_locked_and_scanned_pdfs_are_told_and_an_empty_password_locks_none(tmp_path):
    unlocked = write_pdf(tmp_path / "c.pdf", [["Read me."]], password="")
    assert texts_of(passages(unlocked)) == ["Read me."]
    with pytest.raises(RecordError, match="the PDF is encrypted"):
        Book(write_pdf(tmp_path / "a.pdf", [["Secret."]], password="key"))
    with pytest.raises(RecordError, match="holds no text: 2 pages without text"):
        passages(write_pdf(tmp_path / "b.pdf", [[], []]))


def test_books_are_found_in_folders_and_wrong_ones_refused(tmp_path):
    with pytest.raises(RecordError, match="no book"):
        find_books([str(tmp_path)])
    with pytest.raises(RecordError, match="no such file"):
        find_books([f"{tmp_path}/c.md"])
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "a.md", "deep/c.md", "notes.docx", ".hidden.md"):
        written(tmp_path / name, "text.")
    books, skipped = find_books([str(tmp_path), f"{tmp_path}/a.md"])  # the same file counts once
    assert [book.file.name for book in books] == ["a.md", "b.txt", "c.md"]
    assert skipped == {".docx": 1}
