"""Published robot policies (SmolVLA, pi0, pi0.5) that act as their original code does, from LeRobot's checkpoints."""
