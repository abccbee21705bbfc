"""`python -m dynax.cli`, where the script is not on the path."""

import sys

from dynax.cli.main import main

sys.exit(main())
