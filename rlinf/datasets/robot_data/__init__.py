"""Recorded robot episodes: LeRobotDataset v3 folders (read and written), Minari's datasets, LIBERO's and
ManiSkill's HDF5 files (read)."""
