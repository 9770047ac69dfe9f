"""`python -m puregraph`."""

import sys

from puregraph.cli import main

sys.exit(main())
