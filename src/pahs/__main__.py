import sys

from pahs.cli import main

sys.exit(main())
