"""A second opinion on the verdicts, which shares no code with the first but the reader of records."""
