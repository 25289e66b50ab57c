"""Parameters that notebooks of several papers share."""

from lib.base.parameters import Training


class MuonRates(Training):
    """A notebook that trains matrices by Muon or MuonH, and the rest by AdamW."""

    muon_lr: float
    table_lr: float
    head_lr: float
    norm_lr: float

    @property
    def rates(self) -> dict[str, float]:
        """The rates under the names of the optimiser's fields (``OptimConfig``)."""
        return dict(muon_lr=self.muon_lr, embedding_lr=self.table_lr, head_lr=self.head_lr, norm_lr=self.norm_lr)
