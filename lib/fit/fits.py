"""Fitting laws: the optimum to machine precision, and how sure one can be of it.

The objective is sum_i w_i h(log L_fit(x_i) - log L_i), w_i how often a resample has the point, h Huber's loss (delta
1e-3, as in 000 and 001) or the square. It is minimised by Newton's method over the log amplitudes and the shapes,
inside the law's box, from the best cells of a coarse grid of shapes, in each of which the amplitudes are a linear
least-squares problem.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.base.errors import InputError
from lib.fit import laws
from lib.fit.laws import ANY_SIGN, LEVEL, POSITIVE, Law, floats, number, points, same_index
from lib.fit.optimum import DELTA, Problem, huber, minimum, starts

K = TypeVar("K")  # names of fits

DELTAS = {"huber": DELTA, "squares": np.inf}
UNITS = "L in nats per token, n parameters, D tokens, T loops"


@dataclasses.dataclass(frozen=True)
class Fit:
    """A law at its optimum on data: theta, the log amplitudes and the shapes [p], inputs [n] in the law's order, the
    losses in nats [n], and the delta of Huber's loss that was minimised. All else is read off these, when it is asked
    for: of the many refits of a bootstrap little is."""

    law: Law
    theta: np.ndarray
    inputs: list[np.ndarray]
    loss: np.ndarray
    delta: float
    #: 95 % intervals of parameters, where somebody has them (``between``)
    intervals: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Five lines: the law, its constants, how well it fits, and which constants it does not tell."""
        constants = [
            f"{name} = {value:.4g}"
            + (" [{:.4g}, {:.4g}]".format(*self.intervals[name]) if name in self.intervals else "")
            for name, value in self.params.items()
        ]
        return "\n".join(
            [
                f"{self.law.name} law: {self.law.formula}",
                f"constants: {', '.join(constants)}" + ", 95 % intervals in brackets" * bool(self.intervals),
                f"fit: rmse {self.rms_residual:.2g} nats, R2 {self.r2:.4f}, n = {len(self.loss)} losses",
                f"at a bound: {', '.join(self.at_bound) or 'none'}, open: {', '.join(self.unidentified) or 'none'}",
                f"units: {UNITS}",
            ]
        )

    def between(self, draws: pd.DataFrame) -> "Fit":
        """The same fit with the 95 % intervals of its parameters, between percentiles of ``bootstrap``'s draws; without
        one of a parameter whose error is not known."""
        known = draws.dropna(axis="columns").quantile([0.025, 0.975])
        return dataclasses.replace(self, intervals={str(name): tuple(known[name]) for name in known})

    @cached_property
    def params(self) -> dict[str, float]:
        """Amplitudes and shapes by name."""
        return self.law.params(self.theta)

    def predict(self, *inputs: ArrayLike) -> np.ndarray:
        """The law's loss in nats at other inputs, given in the order of the fit's arguments."""
        return self.law.loss(self.params, *inputs)

    @property
    def free(self) -> int:
        """How many parameters were not held."""
        return int(np.sum(np.less(*self.law.box)))

    @cached_property
    def _problem(self) -> Problem:
        return Problem.of(self.law, self.inputs, self.loss[None], self.delta)

    @cached_property
    def residuals(self) -> np.ndarray:
        """log L_fit - log L [n]."""
        return self._problem.residuals(self.theta[None])[0]

    @property
    def off(self) -> np.ndarray:
        """L_fit - L [n] in nats."""
        return self.loss * np.expm1(self.residuals)

    @property
    def objective(self) -> float:
        """The sum of Huber(1e-3) of the log residuals, whatever delta was minimised."""
        return float(huber(self.residuals, DELTA).sum())

    @property
    def r2(self) -> float:
        """Share of the variance of the losses, in nats, that the law explains."""
        return float(1 - np.mean(self.off**2) / np.var(self.loss))

    @property
    def rms_residual(self) -> float:
        """In nats."""
        return float(np.sqrt(np.mean(self.off**2)))

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Parameters that sit on the law's box."""
        low, high = self.law.box
        return self._named(np.minimum(self.theta - low, high - self.theta) < 1e-6 * (high - low))

    @cached_property
    def unidentified(self) -> tuple[str, ...]:
        """Parameters that the data leave open: those along which the losses hardly change. What is held or on the box
        is not among them."""
        low, high = self.law.box
        free = (low < high) & ~np.isin(self.law.names, self.at_bound)
        left_open = np.zeros(len(free), dtype=bool)
        if free.any():
            _, _, (J,) = self._problem.derivatives(self.theta[None])
            J = J[free]
            J /= np.sqrt(np.maximum((J**2).sum(-1), 1e-300))[:, None]
            information, axes = np.linalg.eigh(J @ J.T)
            left_open[free] = (np.abs(axes[:, information < 1e-9 * information.max()]) > 0.3).any(1)
        return self._named(left_open)

    def _named(self, which: np.ndarray) -> tuple[str, ...]:
        return tuple(name for name, so in zip(self.law.names, which, strict=True) if so)


def fit(law: Law, inputs: Sequence[ArrayLike], loss: ArrayLike, objective: str = "huber") -> Fit:
    """The law at its optimum on arrays of inputs [n], in the law's order, and losses in nats [n].

    objective: huber, with a delta of 1e-3, or squares, of the log residuals. Raises InputError, in one line, for arrays
    that no optimum can be found for. 20,000 points take a second and 60 MB, and as much for each 10 resamples.
    """
    if objective not in DELTAS:
        raise InputError(f"objective: {objective!r} is not known, use one of {', '.join(DELTAS)}")
    inputs, loss = law.checked(inputs, loss)
    found = Fit(law, np.empty(0), inputs, loss, DELTAS[objective])
    (theta,) = minimum(found._problem, *starts(found._problem))
    return dataclasses.replace(found, theta=theta)


def fit_chinchilla(N: ArrayLike, D: ArrayLike, loss: ArrayLike, coupling: float | str = 1, **options: Any) -> Fit:
    """L = E + A N^-alpha + B D^-beta, the per-architecture law of 000 (Eq. 3); coupling: the c of ``laws.coupled``,
    "free" where it is fitted, 1 where the terms add."""
    return fit(laws.coupled(laws.CHINCHILLA, coupling), (N, D), loss, **options)


def fit_joint(
    n_once: ArrayLike,
    n_rec: ArrayLike,
    r: ArrayLike,
    D: ArrayLike,
    loss: ArrayLike,
    phi: float | None = None,
    coupling: float | str = 1,
    **options: Any,
) -> Fit:
    """L = E + A (N_once + r^phi N_rec)^-alpha + B D^-beta, the joint law of 000 (Eq. 5); phi is learned when None, and
    ``coupling`` is that of ``fit_chinchilla``."""
    return fit(laws.coupled(laws.joint(phi), coupling), (n_once, n_rec, r, D), loss, **options)


def fit_parcae(n_eff: ArrayLike, D: ArrayLike, loss: ArrayLike, **options: Any) -> Fit:
    """L = E + A N^-a + B D^-b on effective parameters with all loops unrolled, the training law of 001."""
    return fit(laws.PARCAE, (n_eff, D), loss, **options)


def fit_saturation(T: ArrayLike, loss: ArrayLike, law: Law = laws.SATURATION, **options: Any) -> Fit:
    """L = L_inf + Z exp(-z T) over test-time loops T, or one of its rivals (001)."""
    return fit(law, (T,), loss, **options)


def fit_unified(
    n_eff: ArrayLike,
    D: ArrayLike,
    mu_rec: ArrayLike,
    T: ArrayLike,
    loss: ArrayLike,
    gamma: float | None = None,
    **options: Any,
) -> Fit:
    """L = E + X N^-x + Y D^-y + Z exp(-z mu_rec^-gamma T), the unified law of 001; gamma is learned when None."""
    return fit(laws.unified(gamma), (n_eff, D, mu_rec, T), loss, **options)


def sharing(draws: Sequence[Mapping[K, Fit]], name: str) -> list[dict[K, Fit]]:
    """One law for several groups of points, each with its own parameters but ``name``, which all share: at the least
    sum of their objectives, sought from the groups' own fits and the mean of what they say of ``name``.

    draws: the groups' own fits to their losses, or to so many that might have been at the same inputs."""
    own = [*draws[0].values()]
    law = laws.sharing(own[0].law, name, len(own))
    number = np.repeat(np.arange(len(own)), [len(fit.loss) for fit in own])
    inputs = [np.concatenate(some) for some in zip(*(fit.inputs for fit in own), strict=True)]
    loss = np.array([np.concatenate([fits[group].loss for group in draws[0]]) for fits in draws])
    problem = Problem.of(law, [*inputs, number], loss, own[0].delta)
    # where each group's parameters stand in those of all [groups, p]
    names = own[0].law.names
    at = np.array([[law.names.index(p if p == name else f"{p} {g}") for p in names] for g in range(len(own))])
    thetas = np.array([[fits[group].theta for group in draws[0]] for fits in draws])  # [draws, groups, p]
    begin = np.empty((len(draws), len(law.names)))
    begin[:, at] = thetas
    begin[:, law.names.index(name)] = thetas[..., names.index(name)].mean(1)
    found = []
    for fits, theta in zip(draws, minimum(problem, begin, np.arange(len(draws))), strict=True):
        held = laws.hold(own[0].law, **{name: law.params(theta)[name]})
        of_groups = zip(draws[0], theta[at], strict=True)
        found.append({group: dataclasses.replace(fits[group], law=held, theta=of) for group, of in of_groups})
    return found


def table(fits: dict[str, Fit]) -> pd.DataFrame:
    """One row a fit: its parameters, objective and R2, and which parameters sit on the box or are left open."""
    flags = {name: (", ".join(fit.at_bound), ", ".join(fit.unidentified)) for name, fit in fits.items()}
    rows = {name: {**fit.params, "objective": fit.objective, "R2": fit.r2} for name, fit in fits.items()}
    words = pd.DataFrame.from_dict(flags, orient="index", columns=["on a bound", "open"])
    return pd.DataFrame.from_dict(rows, orient="index").join(words).rename_axis("fit")


# ---- the same law on other losses ------------------------------------------------------------------------------------


def refits(fit: Fit, losses: ArrayLike, weights: ArrayLike = 1.0, **held: ArrayLike) -> list[Fit]:
    """The law of a fit on other losses at its inputs [m, points], each of which counts so often, ``weights`` of the
    same shape; sought from the fit's parameters and from the best cell of the grid, some parameters ``held`` at a value
    for each of the losses [m]."""
    losses = floats({"losses": losses})["losses"]
    if losses.shape[1:] != fit.loss.shape:
        raise InputError(f"losses: {losses.shape} is no table of rows of {len(fit.loss)}, as many as the fit's points")
    points({"losses": losses[np.isfinite(losses)]})
    each = [fit.law] * len(losses)
    if held:
        each = [laws.hold(fit.law, **dict(zip(held, own, strict=True))) for own in zip(*held.values(), strict=True)]
    low, high = np.array([law.box for law in each]).swapaxes(0, 1)
    problem = dataclasses.replace(
        Problem.of(fit.law, fit.inputs, losses, fit.delta, np.asarray(weights)), low=low, high=high
    )
    cells, of = starts(problem, 1)
    begin = np.concatenate([np.clip(fit.theta, low, high), cells])
    best = minimum(problem, begin, np.concatenate([of, of]))
    best[~np.isfinite(losses).all(1)] = np.nan  # of losses that nobody knows no law is known
    return [Fit(law, theta, fit.inputs, loss, fit.delta) for law, theta, loss in zip(each, best, losses, strict=True)]


# ---- how sure --------------------------------------------------------------------------------------------------------

# Three bootstraps. ``bootstrap`` draws cells, and takes them for alike and for many; ``fresh_fits`` draws noise, and
# takes the law for true and its noise for normal and alike in every run; ``flipped`` turns what the law leaves over,
# and takes it for symmetric, cell by cell, and, by ``cell_signs``, for spread like Student's t.


def bootstrap(
    fit: Callable[..., Fit], arrays: Sequence[ArrayLike], cells: Any, n: int = 200, seed: int | Sequence[int] = 0
) -> pd.DataFrame:
    """Refits on cells drawn with replacement: one row a resample, one column a parameter (000, App. F.2).

    fit: a function of this module that returns a Fit; arrays: its arguments in order, the loss last; cells: what each
    point belongs to [n], in any hashable form, or a data frame of columns that say so together. Cells are drawn, not
    points, so that what was trained together stays together. Raises InputError where fit does, and for a single cell.

    A parameter that lies on the law's box, or that the data leave open, is nan in every resample: its error is not
    known. How often the 95 % interval between percentiles of 200 resamples holds the truth, and what ``fresh_fits`` and
    ``flipped`` give in its place, for normal noise of .003 in logs: shares of 400 sets of losses, +-.01
    (tests/fit/coverage.py). They fall short of .95 for ``flipped``, whose residuals are small where a point has weight.

        runs                     draws          E     A   alpha    B   beta   phi    c
        5 budgets of 7 sizes     bootstrap    .98   .97   .97   .97   .98
        (cells of one run)       fresh_fits   .94   .94   .94   .94   .94
                                 flipped      .91   .89   .89   .89   .90
        2 budgets of 5 sizes     bootstrap   1.00  1.00  1.00  1.00  1.00
        (cells of one run)       fresh_fits   .96   .96   .96   .95   .95
                                 flipped      .87   .87   .87   .85   .85
        000's 116 runs           bootstrap    .98   .96   .96   .94   .94   .94
        (cells of budget and r)  fresh_fits   .96   .95   .96   .93   .93   .93
                                 flipped      .92   .92   .92   .89   .89   .89
        the same, coupled        bootstrap    .95   .92   .93   .97   .93   .95  1.00
        (c .4; 60 sets, +-.03)   fresh_fits   .95   .95   .95   .92   .93   .88   .97
                                 flipped      .90   .83   .93   .90   .87   .83   .90
        1 budget of 24 sizes     bootstrap    .98   .99   .96   .91   .90
        (120 sets, +-.03)        fresh_fits  1.00   .99   .99   .91   .91
                                 flipped     1.00   .95   .98   .83   .85
    """
    point = fit(*arrays)
    same_index({"loss": arrays[-1], "cells": cells})
    weights = np.array(resampled(point.law, [*point.inputs, point.loss], cells, n, seed), dtype=float)
    draws = pd.DataFrame([own.params for own in refits(point, np.broadcast_to(point.loss, weights.shape), weights)])
    draws[[*point.at_bound, *point.unidentified]] = np.nan
    return draws


def resampled(law: Law, arrays: Sequence[ArrayLike], cells: Any, n: int, seed: int | Sequence[int]) -> list[np.ndarray]:
    """How often each point [points] is in each of n resamples of the cells. One that leaves an input without a second
    value that the law needs, a single r say, is drawn again."""
    n = int(number("resamples", n, (1, 1e6)))
    cell, size = numbered(cells, np.size(arrays[-1]))
    random = np.random.default_rng(seed)
    varying = [np.asarray(x) for name, x in zip(law.inputs, arrays, strict=False) if name not in law.fixed]
    found: list[np.ndarray] = []
    while len(found) < n:
        weights = np.bincount(random.integers(size, size=size), minlength=size)[cell]
        if all(len(np.unique(x[weights > 0])) > 1 for x in varying):
            found.append(weights)
    return found


def numbered(cells: Any, points: int) -> tuple[np.ndarray, int]:
    """Cell labels as numbers 0, 1, ... [n], and how many cells there are."""
    try:
        frame = cells if isinstance(cells, pd.DataFrame) else pd.DataFrame({"cell": list(cells)})
        by = frame.groupby(list(frame.columns)).ngroup()
    except (TypeError, ValueError):
        raise InputError("cells: are no labels, give a text, a number or a tuple a point, or a table") from None
    if len(by) != points or by.isna().any() or not by.max() > 0:
        raise InputError(f"cells: give one label for each of {points} points, none missing, and two different at least")
    return by.to_numpy(int), int(by.max()) + 1


class Noise(NamedTuple):
    """The variance of a run's loss, and the degrees of freedom that it is known with: nan where there are none."""

    variance: float
    freedom: int

    @classmethod
    def left_over(cls, residuals: Sequence[ArrayLike], parameters: int) -> Self:
        """Of the residuals of several fits that have so many parameters in all."""
        every = np.concatenate([np.empty(0), *(np.asarray(some, dtype=float) for some in residuals)])
        freedom = len(every) - parameters
        return cls(float(every @ every / freedom), freedom) if freedom > 0 else cls(np.nan, 0)

    def draws(self, n: int, size: int, random: np.random.Generator) -> np.ndarray:
        """Normal noise [n, size]. Its variance is drawn too, for each of the n, as far as it is open (scaled inverse
        chi-square), so that percentiles of what is linear in it are Student's t. nan where it is not known."""
        if not self.freedom:
            return np.full((n, size), np.nan)
        deviations = np.sqrt(self.variance * self.freedom / random.chisquare(self.freedom, n))
        return deviations[:, None] * random.standard_normal((n, size))


def fresh_fits(fits: Mapping[K, Fit], n: int, seed: int | Sequence[int] = 0) -> list[dict[K, Fit]]:
    """The same laws on n grids of runs that might have been trained instead (a parametric bootstrap): what each law
    says of its runs, and normal noise, whose variance is drawn anew for each grid, as far as what all fits together
    leave over says it (``noise_of``).

    It is for few blocks of runs, three budgets of one architecture, say: ``bootstrap`` has little to draw from, and
    says how often both hold the truth. The draws of a parameter that lies on the box or is open (``at_bound``,
    ``unidentified``) make no interval; where nothing is left over to tell the noise by, all are nan."""
    sizes = [len(fit.loss) for fit in fits.values()]
    grids = noise_of(fits).draws(n, sum(sizes), np.random.default_rng(seed))
    shifts = np.split(grids, np.cumsum(sizes)[:-1], axis=1)
    drawn = [
        refits(fit, fit.predict(*fit.inputs) * np.exp(own)) for fit, own in zip(fits.values(), shifts, strict=True)
    ]
    return [dict(zip(fits, grid, strict=True)) for grid in zip(*drawn, strict=True)]


def noise_of(fits: Mapping[K, Fit]) -> Noise:
    """The noise of a run's log loss: what the laws leave over at their least squares; Huber's optimum leaves more."""
    squares = [fit(own.law, own.inputs, own.loss, "squares") for own in fits.values()]
    return Noise.left_over([own.residuals for own in squares], sum(own.free for own in squares))


def flipped(own: Fit, signs: np.ndarray) -> list[Fit]:
    """The same law on other losses: its own predictions, and what its least squares leave over with other signs [n,
    points] (``cell_signs``), scaled to the degrees of freedom. All inputs stay in every refit, where ``bootstrap``
    loses some of a small grid's: of eight cells a third, and with them what identifies the law."""
    left = fit(own.law, own.inputs, own.loss, "squares")
    scale = np.sqrt(len(left.loss) / max(1, len(left.loss) - left.free))
    return refits(own, own.predict(*own.inputs) * np.exp(scale * left.residuals * signs))


def cell_signs(cells: Any, n: int, seed: int | Sequence[int] = 0) -> np.ndarray:
    """Signs [n, points], the same for all points of a cell, so that what was trained together stays together (the wild
    cluster bootstrap), and in each of the n spread like Student's t with one degree of freedom less than there are
    cells.

    cells: what each point belongs to, in any hashable form, or a data frame of columns that say so together."""
    number, size = numbered(cells, len(cells))
    random = np.random.default_rng(seed)
    spread = np.sqrt((size - 1) / random.chisquare(size - 1, n))
    return (spread[:, None] * random.choice([-1.0, 1.0], (n, size)))[:, number]


def split(by: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Which points [n] lie low and which high in ``by`` [n], the budget say (000, App. F.3), cut between its values
    where the halves are most equal."""
    (by,) = points({"by": by}, {"by": ANY_SIGN})
    cut = min(np.unique(by)[:-1], key=lambda value: abs((by <= value).mean() - 0.5), default=None)
    if cut is None:
        raise InputError(f"by: {len(np.unique(by))} values make no halves, give points at two at least")
    return by <= cut, by > cut


# ---- optima and power laws -------------------------------------------------------------------------------------------


def isoflop_optimum(x: ArrayLike, loss: ArrayLike) -> tuple[float, float, float]:
    """(x*, loss*, stderr): the minimum of a parabola of the loss in log x, and the standard error of x* (delta method,
    in units of x; nan for three points). Raises InputError where the parabola has no minimum.

    Of a law's losses with normal noise of .003 in logs x* +- 1.96 stderr holds the optimum in 83, 87 and 91 % of cases
    at 5, 7 and 12 sizes over a factor of 16, and in 95 % with Student's t of sizes - 3 degrees of freedom in the place
    of 1.96 (tests/fit/coverage.py): use that."""
    x, loss = points({"x": x, "loss": loss}, {"loss": ANY_SIGN})
    apart = np.diff(np.unique(np.log(x))) > 1e-6
    if apart.sum() < 2:
        raise InputError(f"x: a parabola needs three different points, there are {apart.sum() + 1} among {x.size}")
    centre = np.log(x).mean()
    design = np.vander(np.log(x) - centre, 3)
    (a, b, c), *_, singular = np.linalg.lstsq(design, loss)
    flat = (LEVEL * np.abs(loss).max() + POSITIVE[0]) / singular.min()  # what rounding bends a level by
    if a <= flat or abs(b) > 200 * a:  # or one a hundred e-foldings away
        raise InputError("loss: has no minimum over these x, widen their range")
    best = -b / (2 * a)
    stderr = np.nan
    if len(x) > 3:
        residual = loss - design @ (a, b, c)
        covariance = np.linalg.inv(design.T @ design) * (residual @ residual) / (len(x) - 3)
        slope = np.array([b / (2 * a * a), -1 / (2 * a), 0])
        stderr = np.exp(best + centre) * np.sqrt(slope @ covariance @ slope)
    return float(np.exp(best + centre)), float(c - b * b / (4 * a)), float(stderr)


def power_law(x: ArrayLike, y: ArrayLike) -> tuple[float, float, float]:
    """(coef, exponent, stderr) of y = coef x^exponent by least squares in logs; stderr of the exponent, nan for two
    points. Compute-optimal N* ~ C^a, L* ~ N^-alpha (its exponent is -alpha), and their like."""
    x, y = points({"x": x, "y": y})
    if x.size < 2 or np.ptp(x) <= LEVEL * x.max():
        raise InputError(f"x: {x.size} points at {len(np.unique(x))} values, a power law needs at least two of both")
    import scipy.stats

    line = scipy.stats.linregress(np.log(x), np.log(y))
    return float(np.exp(line.intercept)), float(line.slope), float(line.stderr) if len(x) > 2 else np.nan
