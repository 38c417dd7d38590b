"""Policies: networks that act and say how likely their actions were."""
