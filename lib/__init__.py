"""Looped language models: one library behind every notebook of the workbook."""

#: Raised by one whenever the numerics change, so that runs of two recipes never share a key.
RECIPE = 3
