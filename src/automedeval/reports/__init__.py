"""Drawing charts and filling report pages; this room knows no record.

Sentences about one kind of result belong into the room of that result.
"""
