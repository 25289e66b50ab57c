"""Where the workbook is, and what lies in it."""

from pathlib import Path

import lib

ROOT = Path(lib.__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
PARAMS = ROOT / "params"
RECORDS = ROOT / "outputs" / "records"
LEDGER = PARAMS / "claims.yaml"
