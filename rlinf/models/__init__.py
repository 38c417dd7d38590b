<<<<<<< HEAD
"""Policies: networks that act and say how likely their actions were."""
=======
"""Policies: networks that act, and that say how likely their actions were."""
>>>>>>> main
