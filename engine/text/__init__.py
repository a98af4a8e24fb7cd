"""Prompts to token ids and tokens to text. Callers' threads and the tokenizer pool."""
