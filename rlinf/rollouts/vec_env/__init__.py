"""Gymnasium environments side by side: in this process, in processes of their own, or natively vectorized."""
