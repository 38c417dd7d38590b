"""Procedurally generated tasks of the reasoning-gym library."""
