"""Recorded robot episodes: LeRobotDataset v3 folders (read and written), LIBERO's and ManiSkill's HDF5 files (read)."""
