"""Tables: CSV, JSON Lines, spreadsheets and chats become cases, and people's ratings become records.

`cases` reads a file by `rows` and `columns`; `ratings` reads what people said of its answers.
"""
