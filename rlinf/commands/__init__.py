"""What the command line prints by itself, without torch."""
