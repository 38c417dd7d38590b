"""``rlinf import``: another framework's configuration, command or script as a file of ours, and what changes with it.

A peer's module reads its settings and puts ours into a :class:`~rlinf_import.sheet.Sheet`, which keeps
account of every setting: read as, differs in meaning, ignored and why, to decide. What a peer does where nobody wrote
anything is carried over too, wherever our default is another one.
"""
