"""`python -m rlinf`: the command line of the interpreter that runs it."""

import sys

from rlinf.cli import main

sys.exit(main())
