"""Recorded data that supervised training reads: conversations, and episodes of robots."""
