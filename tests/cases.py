"""A measurement and a claim that are nobody's."""

from pydantic import Field

from lib.config import Config
from lib.sweep.measurements import named
from lib.workbook.claims import Claim


class Case(Config):
    x: float = 0.0
    note: str = Field("", description="a field that is mostly left alone")

    @property
    def flops(self) -> float:
        return 1 + self.x


@named("tests.cases.squared")
def squared(case: Case) -> dict:
    return {"square": case.x**2}


def claim(kind="ordering", **changes):
    fields = dict(id="x", paper="001", where="Fig. 1", statement="s", kind=kind, notebook="n", estimand="a mean")
    fields |= dict(replicates="seeds", effect=0.01, effect_from="Fig. 1")
    return Claim(**{**fields, **changes})
