"""`python scripts/pre_submission_check.py`: the checks of `tools/pre_submission_check.py` under the documented path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.pre_submission_check import main

if __name__ == "__main__":
    raise SystemExit(main())
