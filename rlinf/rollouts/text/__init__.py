"""Conversations of a language model with text environments, made into batches."""
