"""Drawing charts and filling report pages; this room knows no record."""
