"""Where text comes from, and the tokenizer that it is cut by."""
