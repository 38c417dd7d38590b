"""Policies: networks that act, and that compute how likely their actions were."""
