"""``rlinf import``: another framework's configuration, command or script as a file of ours, with the changes.

A peer's module reads its settings and puts ours into a :class:`~rlinf_import.sheet.Sheet`, which keeps
account of every setting: read as, differs in meaning, ignored and why, to decide. A peer's defaults are
carried over too, if our default is another one.
"""
