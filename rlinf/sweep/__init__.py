"""Families of runs: one YAML file, Ray Tune as the engine, statistics over seeds. ray.tune is imported here only."""
