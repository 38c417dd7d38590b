"""Games in text: ordinary gymnasium environments, one conversation each."""
