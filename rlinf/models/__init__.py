"""Policies: networks that act, and that say how likely their actions were."""
