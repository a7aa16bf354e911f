"""Say what the question of a case is, which may be a conversation, and how all of it is shown."""

from typing import Any

from automedeval.records.messages import Message, is_conversation, read_conversation

Question = str | list[Message]


def patient_messages(question: Question) -> list[str]:
    """Return what the patient says, the newest message first; a text is one message.

    The patient is the role "user"; where no message has it, the role that spoke last.
    """
    if isinstance(question, str):
        return [question]
    roles = [message["role"] for message in question]
    patient = "user" if "user" in roles or not roles else roles[-1]
    return [message["content"] for message in reversed(question) if message["role"] == patient]


def patient_question(question: Question) -> str:
    """Return what is asked: all that the patient says.

    Whatever reads the question of a case or compares questions reads this. What a system or an assistant says is no part of it.
    """
    return "\n".join(patient_messages(question))


def question_text(question: Question) -> str:
    """Return all of a question as it is shown: of several messages, lines of "role: content"."""
    if isinstance(question, str):
        return question
    if len(question) == 1:
        return question[0]["content"]
    return "\n".join(f"{message['role']}: {message['content']}" for message in question)


def key_of(cell: Any) -> str:
    """Return what two questions, references or topics are compared by: blanks do not count."""
    if is_conversation(cell):
        cell = patient_question(read_conversation(cell, "question"))
    return " ".join(str(cell or "").split())
