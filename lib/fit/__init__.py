"""Scaling laws on any data frame: their exact optimum, its uncertainty, and what follows from them."""

from lib.fit.bakeoff import bakeoff
from lib.fit.equivalent import RunPhi, r2_of_gaps, run_phi
from lib.fit.fits import (
    Fit,
    bootstrap,
    fit_chinchilla,
    fit_joint,
    fit_parcae,
    fit_saturation,
    fit_unified,
    isoflop_optimum,
    power_law,
)

__all__ = [
    "Fit",
    "RunPhi",
    "bakeoff",
    "bootstrap",
    "fit_chinchilla",
    "fit_joint",
    "fit_parcae",
    "fit_saturation",
    "fit_unified",
    "isoflop_optimum",
    "power_law",
    "r2_of_gaps",
    "run_phi",
]
