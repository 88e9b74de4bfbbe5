"""`python -m lapis.cli`: the same as `lapis`."""

import sys

from lapis.cli import main

sys.exit(main())
