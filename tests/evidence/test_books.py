"""Books to passages: what is read, where it is cut, and what is refused."""

import pytest
from doubles.agreement_study import write
from doubles.pdf import write_pdf
from hypothesis import given
from hypothesis import strategies as st
from tables import refused, rows_of

from automedeval.evidence.books import Book, find_books
from automedeval.records import RecordError

ROWS = rows_of(__file__)


def count(texts):
    """Count words, and every eight characters of a long one."""
    return [sum(-(-len(word) // 8) for word in text.split()) for text in texts]


def passages(file, tokens=200, overlap=40):
    return Book(file).passages(count, tokens, overlap)


def test_markdown_keeps_title_and_headings(tmp_path):
    file = tmp_path / "medical.md"
    file.write_text(ROWS["markdown"], encoding="utf-8")
    found = [[one.book, one.section, one.text] for one in passages(file)]
    assert found == [
        ["Small book", "", "Foreword here."],
        ["Small book", "Heart", "First line second line."],
        ["Small book", "Heart > Rhythm", "Beats. # no heading"],
        ["Small book", "Lung", "one two"],
    ]


def test_a_file_of_several_chapters_is_called_after_the_file(tmp_path):
    file = tmp_path / "medical.md"
    file.write_text("# One\na.\n# Two\n## Part\nb.\n", encoding="utf-8")
    found = [(one.book, one.section) for one in passages(file)]
    assert found == [("medical", "One"), ("medical", "Two > Part")]


def test_cuts_stand_at_the_ends_of_sentences_and_overlap(tmp_path):
    file = tmp_path / "b.txt"
    first = "Dr. Smith gave 2.5 mg, e.g. Aspirin. It helped (Fig. 3)."
    second = "Was it safe? Yes. The end came."
    file.write_text(f"{first} {second}", encoding="utf-8")
    assert [one.text for one in passages(file, 11, 0)] == [first, second]
    overlapping = [first, f"It helped (Fig. 3). {second}"]
    assert [one.text for one in passages(file, 11, 4)] == overlapping


WORDS = st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=30)
SENTENCE = st.lists(WORDS, min_size=1, max_size=12).map(" ".join).map(str.capitalize)
SENTENCES = st.lists(SENTENCE.map("{}.".format), min_size=1)


@given(SENTENCES, st.integers(1, 15), st.integers(0, 14))
def test_no_passage_exceeds_the_budget_and_nothing_is_lost(
    tmp_path_factory, texts, tokens, overlap
):
    file = tmp_path_factory.mktemp("book") / "b.txt"
    file.write_text(" ".join(texts), encoding="utf-8")
    found = [one.text for one in passages(file, tokens, min(overlap, tokens - 1))]
    assert max(count(found)) <= tokens
    if overlap == 0 or tokens == 1:
        assert "".join("".join(found).split()) == "".join("".join(texts).split())
        return
    fitting = " ".join(text for text in texts if count([text])[0] <= tokens)
    assert set(fitting.split()) <= set(" ".join(found).split())


def test_a_passage_is_known_by_its_content_alone(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("One.\n\nTwo.", encoding="utf-8")
    first, again = passages(tmp_path / "a.txt")[0], passages(tmp_path / "a.txt")[0]
    assert first.id == again.id
    assert first.id != passages(tmp_path / "b.txt")[0].id  # another book
    about = {"book": "a", "section": "", "page": None, "text": "One. Two.", "score": None}
    assert first.to_dict() == {"id": first.id, **about}


def test_json_lines_keep_book_section_and_page(tmp_path):
    file = write(tmp_path / "shelf.jsonl", ROWS["json lines"])
    found = [[one.book, one.section, one.page, one.text] for one in passages(file)]
    assert found == [
        ["B", "Heart > Drugs", 3, "One."],
        ["B", "Drugs", None, "Two."],
        ["shelf", "", None, "Three."],
    ]


def test_pdf_keeps_pages_and_drops_running_heads(tmp_path):
    pages = [
        [f"Running head {number}", f"Page {number} says some-", "thing.", str(number)]
        for number in range(1, 5)
    ]
    book = Book(write_pdf(tmp_path / "b.pdf", [*pages[:3], [], pages[3]]))
    found = [(one.page, one.text) for one in book.passages(count, 5, 0)]
    numbers = zip((1, 2, 3, 5), range(1, 5))
    assert found == [(page, f"Page {number} says something.") for page, number in numbers]
    assert book.pages_without_text == 1


def test_lines_of_the_same_form_at_both_ends_of_a_few_pages_stay(tmp_path):
    pages = ["Dose 1 mg.|Daily.|Dose 2 mg.", "Dose 3 mg.|Daily.|Dose 4 mg.", "Text a.", "Text b."]
    file = write_pdf(tmp_path / "b.pdf", [*(page.split("|") for page in pages), ["Text c."]])
    (one,) = Book(file).passages(count, 40, 0)
    assert one.text == " ".join([*pages, "Text c."]).replace("|", " ")


@pytest.mark.parametrize(("name", "content", "told"), ROWS["test_what_cannot_be_read_is_told"])
def test_what_cannot_be_read_is_told(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with refused(tmp_path / name, told):
        passages(tmp_path / name)


def test_locked_and_scanned_pdfs_are_told_and_an_empty_password_locks_none(tmp_path):
    (one,) = passages(write_pdf(tmp_path / "c.pdf", [["Read me."]], password=""))
    assert one.text == "Read me."
    with pytest.raises(RecordError, match="the PDF is encrypted"):
        Book(write_pdf(tmp_path / "a.pdf", [["Secret."]], password="key"))
    with pytest.raises(RecordError, match="holds no text: 2 pages without text"):
        passages(write_pdf(tmp_path / "b.pdf", [[], []]))


def test_books_are_found_in_folders_and_wrong_ones_refused(tmp_path):
    with pytest.raises(RecordError, match="no book"):
        find_books([tmp_path])
    with pytest.raises(RecordError, match="no such file"):
        find_books([tmp_path / "c.md"])
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "a.md", "deep/c.md", "notes.docx", ".hidden.md"):
        (tmp_path / name).write_text("text.", encoding="utf-8")
    books, skipped = find_books([tmp_path, tmp_path / "a.md"])  # the same file counts once
    assert [book.file.name for book in books] == ["a.md", "b.txt", "c.md"]
    assert skipped == {".docx": 1}
