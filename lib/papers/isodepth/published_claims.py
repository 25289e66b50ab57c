"""The claims of 000 that its own published runs decide, each with the numbers that the notebooks report of ours."""

import pandas as pd

from lib.fit.fits import Fit, noise_of
from lib.papers.isodepth import designs, published, readings
from lib.papers.shared.reported import Reported

#: claim -> what ``published.by_own_laws`` has for it, and its unit
BY_LAWS = {
    "000-r2-trails-the-plain-frontier": ("r = 2", "nats"),
    "000-r4-trails-the-plain-frontier": ("r = 4", "nats"),
    "000-r8-trails-the-plain-frontier": ("r = 8", "nats"),
    "000-gap-grows-from-2-to-4": ("from 2 to 4", "nats"),
    "000-gap-grows-from-4-to-8": ("from 4 to 8", "nats"),
    "000-no-crossover": ("everywhere", "nats"),
    "000-gap-widens-at-lower-budgets": ("fades", "nats"),
    "000-gap-flattens-at-the-top": ("flat", "nats below .006"),
    "000-looped-optimum-is-wider": ("wider", "octaves of width"),
    "000-looped-optimum-has-fewer-parameters": ("fewer", "octaves of N"),
    "000-looping-wants-more-tokens": ("tokens", "octaves of D*/N*"),
    "000-data-exponent-plain": ("a_D, r = 1", "a_D"),
    "000-data-exponent-looped": ("a_D", "a_D"),
    "000-looped-data-exponent-is-larger": ("a_D, larger", "a_D"),
    "000-own-laws-fit": ("unexplained", "1 - R^2"),
    "000-own-laws-residuals": ("largest residual", "nats"),
}
#: and ``published.by_parabolas``
BY_PARABOLAS = {
    "000-gap-at-r2-in-nats": ("r = 2", "nats"),
    "000-gap-at-r4-in-nats": ("r = 4", "nats"),
    "000-gap-at-r8-in-nats": ("r = 8", "nats"),
    "000-looped-parabolas-are-flatter": ("flatter", "nats per (e-fold of N)^2"),
}
#: and ``readings.joint_quality``
OF_QUALITY = {
    "000-joint-law-r2": ("unexplained", "1 - R^2"),
    "000-joint-law-residuals": ("rms", "nats"),
    "000-joint-law-largest-residual": ("largest residual", "nats"),
    "000-residuals-have-no-trend": ("trend", "Spearman rho"),
}
#: and ``readings.probe_shifts``
OF_SHIFTS = {
    "000-truncation-lowers-phi": ("truncated, lower phi", "phi"),
    "000-hyper-connections-raise-phi": ("hyper-connections, higher phi", "phi"),
    "000-phi-under-truncation": ("truncated, phi", "phi"),
    "000-phi-with-hyper-connections": ("hyper-connections, phi", "phi"),
    "000-data-exponent-of-the-joint-law": ("baseline, a_D", "a_D"),
    "000-data-exponent-under-truncation": ("truncated, a_D", "a_D"),
    "000-data-exponent-with-hyper-connections": ("hyper-connections, a_D", "a_D"),
    "000-truncation-widens-the-optimum": ("truncated, wider", "octaves of width"),
    "000-hyper-connections-narrow-the-optimum": ("hyper-connections, narrower", "octaves of width"),
}
#: claim -> the probe whose loss is compared with the baseline's
OF_LOSSES = {"000-truncation-lowers-loss": "truncated", "000-hyper-connections-lower-loss": "hyper-connections"}


def of_frontier(grid: pd.DataFrame, families: dict[int, pd.DataFrame], resamples: int, seed: int) -> list[Reported]:
    """What each recurrence's own law and the parabolas say of ``grid``. Draws are grids that might have been."""
    by_laws = published.by_own_laws(grid, families, resamples, seed)
    by_parabolas = published.by_parabolas(grid, resamples, seed)
    return [
        Reported(id, readings.as_values(values[name]), draws[name], unit)
        for ids, (values, draws) in ((BY_LAWS, by_laws), (BY_PARABOLAS, by_parabolas))
        for id, (name, unit) in ids.items()
    ]


def of_joint_law(
    grid: pd.DataFrame, law: Fit, fresh: list[Fit], families: dict[int, pd.DataFrame], accounting: str, seed: int
) -> list[Reported]:
    """What the joint law says of ``grid``; ``fresh``: the law on grids that might have been (``fresh_joint``)."""
    note = f"{len(fresh)} fresh grids; the injection counted {published.ACCOUNTINGS[accounting]}"
    phi, phis = law.params["phi"], [one.params["phi"] for one in fresh]
    quality, of_quality = readings.joint_quality(law, fresh, grid, seed)
    share, *shares = (readings.worth(families, x).set_index("r")["effective"][4] for x in (phi, *phis))
    of_phi = {
        "000-phi-above-zero": (phi, phis, "phi"),
        "000-phi-below-one": (1 - phi, [1 - x for x in phis], "1 - phi"),
        "000-phi": (phi, phis, "phi"),
        "000-r4-effective-share": (share, shares, "N_eff at r = 4 over N at r = 1"),
        "000-phi-one-fits-worse-than-phi-zero": (*readings.held_phi_margin(fresh, grid), "R^2"),
        "000-phi-is-stable-over-budgets": (*readings.drift_of_phi(law, fresh, grid), "phi"),
    }
    return [
        *(Reported(id, [x], draws, unit, note) for id, (x, draws, unit) in of_phi.items()),
        *(
            Reported(id, readings.as_values(quality[name]), of_quality[name], unit, note)
            for id, (name, unit) in OF_QUALITY.items()
        ),
    ]


def of_probes(
    four: pd.DataFrame, probes: dict[str, pd.DataFrame], drawn: dict[str, list[Fit]], refits: dict[str, Fit], seed: int
) -> list[Reported]:
    """What the probes do. four: all runs at the budgets of the probes; probes: the runs of each joint fit; drawn and
    refits: these fits on grids that might have been (``readings.probe_draws``) and on the runs."""
    tokens = designs.published_token_gain("truncated")
    sizes = {probe: designs.published_families(probe)[4] for probe in probes}
    moves, moved = readings.probe_shifts(drawn, sizes, 4, sorted(four["budget"].unique()))
    rest, of_rest = readings.without(drawn["truncated"], probes["truncated"], 2)
    worst, of_worst = readings.worst_fitted(refits["truncated"], probes["truncated"], 2, seed)
    lead, of_lead = readings.lead_over_plain(probes["hyper-connections"], 2, seed)
    losses = four.pivot(index=["budget", "r", "width"], columns="probe", values="loss").query("r > 1")
    gained = {id: readings.cell_means(losses["baseline"] - losses[probe], seed) for id, probe in OF_LOSSES.items()}
    others = {
        "000-truncated-r2-fits-worst": (worst["worst"], of_worst["worst"], "octaves of rms residual"),
        "000-truncated-phi-without-r2": (rest["phi"], of_rest["phi"], "phi"),
        "000-truncated-fit-without-r2": (rest["r2"], of_rest["r2"], "R^2"),
        "000-hyper-connected-r2-matches-plain": (lead, of_lead, "nats"),
    }
    return [
        *(Reported(id, values, draws, "nats", "mean over widths") for id, (values, draws) in gained.items()),
        *(Reported(id, [moves[name]], moved[name], unit) for id, (name, unit) in OF_SHIFTS.items()),
        *(Reported(id, readings.as_values(x), draws, unit) for id, (x, draws, unit) in others.items()),
        Reported("000-truncation-buys-tokens", [tokens], (tokens, tokens), "times the tokens", "counted"),
    ]


def of_pair(pair: pd.DataFrame, own: dict[int, Fit], grid: pd.DataFrame, seed: int) -> list[Reported]:
    """The gap of the two runs past the grid (``published.pair``), with the noise that each recurrence's own law leaves
    over on it."""
    gap, draws = readings.matched_gap(pair, noise_of(own), seed)
    return [Reported("000-looped-trails-beyond-the-grid", [gap], draws, "nats")]
