"""Measures how many small faults, put into any module of lib but the figures', the tests notice (make mutants).

Cosmic Ray lists the faults and makes them, in copies of the workbook; the working tree is only read. Each fault of a
sample of fixed seed meets its module's twin first, and what survives that the gate's stages, as make runs them.
docs/testing.md gets the score and the faults that nothing noticed.
"""

import signal
import sys

from tests.mutants import page
from tests.mutants.copies import settled
from tests.mutants.faults import sampled
from tests.mutants.notes import Notes
from tests.mutants.stages import meet_stages
from tests.mutants.twins import meet_twins, prepare


def main(twins_only: bool) -> None:
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        raise SystemExit("cosmic_ray: is not installed, run .venv/bin/pip install -e .[mutation]") from None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was begun is ended as well
    place = settled()
    faults, sample = sampled(place)
    prepare()
    notes = Notes(place / "results.jsonl")
    meet_twins(place, sample, notes)
    if not twins_only:
        meet_stages(place, sample, notes)
    page.write(place, faults, sample, notes.all())


if __name__ == "__main__":
    main(twins_only=sys.argv[1:] == ["twins"])
