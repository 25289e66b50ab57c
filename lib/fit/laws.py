"""The functional forms of the papers: every law is made of terms exp(a_j + g_j(x)), and L is their sum.

An amplitude A = exp(a_j) scales each term, and log_terms gives the g_j from the shape parameters and the data, so that
log L is a log-sum-exp (000, Eq. 6). Terms x, y that are ``coupled`` stand in it as (x^(1/c) + y^(1/c))^c: their sum at
c = 1, the larger of them at c -> 0, and between them a model gains more from data the larger it is. A new law takes a
few lines:

    kaplan = Law("Kaplan", ("N",), {"A": AMPLITUDE}, {"alpha": EXPONENT}, lambda p, N: [-p["alpha"] * np.log(N)])

log_terms must be made of numpy's analytic functions: it is differentiated by complex steps. Units: N parameters, D
tokens, T and mu_rec loops, losses nats per token.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.base.errors import InputError

LEVEL = 1e-13  # of the largest value: what rounding alone makes of a level
POSITIVE = (1e-30, 1e30)  # no unit goes beyond, and powers and squares stay finite
NOT_NEGATIVE = (0.0, 1e30)
ANY_SIGN = (-1e30, 1e30)
AMPLITUDE = (-5.0, 35.0)  # bounds on log A, log B (000, App. F)
FLOOR = (-3.0, 2.0)  # on log E
EXPONENT = (0.0, 2.5)
COUPLING = (0.05, 3.0)
PHI = (-3.0, 3.0)
HELD = (-100.0, 100.0)  # shapes, whatever their box
ABSENT = -1e3  # g_j of a term that a point does not have


# ---- where numbers of others come in: as arrays of floats, or as one line that names the column and what to do -------


def columns(table: Any, names: list[str]) -> dict[str, Any]:
    """Name -> column, of a table, or what else has names."""
    for name in names:
        if name not in table:
            raise InputError(f"{name}: is not there, only {', '.join(map(str, table))}; add it")
    return {name: table[name] for name in names}


def same_index(given: dict[str, Any]) -> None:
    """Raises InputError for columns of other rows, or of the same in another order: they would go by position."""
    indexed = [(name, x.index) for name, x in given.items() if isinstance(x, (pd.Series, pd.DataFrame))]
    for name, index in indexed[1:]:
        if not index.equals(indexed[0][1]):
            raise InputError(f"{indexed[0][0]}, {name}: indices differ, take both from one table, or both .to_numpy()")


def floats(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Each as floats of its own shape, and nan for what is missing."""
    same_index(given)
    return {name: _floats(name, x) for name, x in given.items()}


def points(given: dict[str, Any], bounds: dict[str, tuple[float, float]] | None = None) -> list[np.ndarray]:
    """Each as floats of one shape, within its bounds: positive where none are given."""
    found = floats(given)
    shapes = [x.shape for x in found.values() if x.ndim]
    if any(len(shape) > 1 or shape != shapes[0] for shape in shapes):
        raise InputError(f"{', '.join(found)}: have shapes {shapes}, give one number a point in each")
    for name, x in found.items():
        low, high = (bounds or {}).get(name, POSITIVE)
        off = x[~((x >= low) & (x <= high))]
        if off.size:
            raise InputError(
                f"{name}: {off[0]:g} lies outside {low:g} to {high:g}, as {off.size} of {x.size} do; leave those out"
            )
    return [*np.broadcast_arrays(*found.values())]


def number(name: str, value: Any, bounds: tuple[float, float]) -> float:
    """A single one."""
    return float(points({name: [value]}, {name: bounds})[0][0])


def _floats(name: str, x: Any) -> np.ndarray:
    try:
        array = np.asarray(x.filled(np.nan) if isinstance(x, np.ma.MaskedArray) else x)
        if array.dtype.kind in "OSU":
            array = np.reshape([float(value) for value in pd.to_numeric(array.ravel()).tolist()], array.shape)
        if array.dtype.kind not in "iuf":  # truth values, dates and complex numbers, which numpy would convert
            raise TypeError(f"{array.dtype} are no numbers")
        return array.astype(float, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{name}: {str(error)!r}; give numbers, and leave out the runs that have none") from None


# ---- laws ------------------------------------------------------------------------------------------------------------

#: g_j of each amplitude, an array or a constant
Terms = list[np.ndarray | float]


@dataclasses.dataclass(frozen=True)
class Law:
    """inputs: the names of its arguments. amplitudes, shapes: name -> bounds, of log A and of the parameter itself.

    log_terms(p, *inputs) -> the g_j in the order of the amplitudes, 0 for a constant; p maps shape names to values.
    grids: where a coarse search for a start looks, for shapes whose bounds are wider than what occurs. fixed: inputs
    that may be the same in every point; all others have to vary, or the law is not identified. may_be_zero: inputs
    whose logarithm the law does not take by itself. formula: the law as a fit shows it. coupled: the amplitudes whose
    terms are coupled by the shape c.
    """

    name: str
    inputs: tuple[str, ...]
    amplitudes: dict[str, tuple[float, float]]
    shapes: dict[str, tuple[float, float]]
    log_terms: Callable[..., Terms]
    grids: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    may_be_zero: tuple[str, ...] = ()
    formula: str = ""
    coupled: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters, in the order of theta: amplitudes and then shapes."""
        return (*self.amplitudes, *self.shapes)

    def params(self, theta: np.ndarray) -> dict[str, float]:
        """Amplitudes and shapes by name, of theta [p], log amplitudes and shapes."""
        k = len(self.amplitudes)
        return dict(zip(self.names, [*np.exp(theta[:k]).tolist(), *theta[k:].tolist()], strict=True))

    @functools.cached_property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest theta [p], log amplitudes and then shapes."""
        low, high = np.array([*self.amplitudes.values(), *self.shapes.values()], dtype=float).T
        return low, high

    def loss(self, params: Mapping[Any, float], *inputs: ArrayLike) -> np.ndarray:
        """The law's loss at these inputs."""
        params = columns(params, [*self.names])
        named = zip(self.amplitudes, self.log_terms(params, *self._arrays(inputs)), strict=True)
        terms = {name: params[name] * np.exp(g) for name, g in named}
        if self.coupled:
            terms["coupled"] = sum(terms.pop(name) ** (1 / params["c"]) for name in self.coupled) ** params["c"]
        return sum(terms.values(), np.zeros(()))

    def checked(self, inputs: Sequence[ArrayLike], loss: ArrayLike) -> tuple[list[np.ndarray], np.ndarray]:
        """The arrays of a fit, as floats. Raises InputError for those that no optimum can be found for."""
        *arrays, loss = self._arrays(inputs, loss=loss)
        free = int(np.sum(np.less(*self.box)))
        if loss.size <= free:
            raise InputError(
                f"loss: {loss.size} points cannot fit the {free} parameters of the {self.name} law, add some"
            )
        for name, x in zip((*self.inputs, "loss"), (*arrays, loss), strict=True):
            if name not in self.fixed and np.ptp(x) <= LEVEL * x.max():
                raise InputError(f"{name}: is {x[0]:g} in every point, the {self.name} law needs at least two values")
        return arrays, loss

    def _arrays(self, inputs: Sequence[ArrayLike], **more: ArrayLike) -> list[np.ndarray]:
        if len(inputs) != len(self.inputs):
            raise InputError(f"inputs: {len(inputs)} arrays for the {self.name} law, give {', '.join(self.inputs)}")
        return points(dict(zip(self.inputs, inputs, strict=True)) | more, dict.fromkeys(self.may_be_zero, NOT_NEGATIVE))


GRID = {"alpha": np.linspace(0.05, 1.0, 12), "beta": np.linspace(0.05, 1.0, 12)}

#: of Hoffmann et al. (000, Eq. 3)
CHINCHILLA = Law(
    "Chinchilla",
    ("N", "D"),
    {"A": AMPLITUDE, "B": AMPLITUDE, "E": FLOOR},
    {"alpha": EXPONENT, "beta": EXPONENT},
    lambda p, N, D: [-p["alpha"] * np.log(N), -p["beta"] * np.log(D), 0],
    GRID,
    formula="L = E + A N^-alpha + B D^-beta",
)


def looped(law: Law, once: str = "n_once", rec: str = "n_rec") -> Law:
    """A law in N with N = N_once + r^phi N_rec in its place, as 000 has it in Chinchilla's (Eq. 5). once, rec: what the
    inputs are called."""
    return dataclasses.replace(
        law,
        inputs=(once, rec, "r", *law.inputs[1:]),
        shapes=law.shapes | {"phi": PHI},
        log_terms=lambda p, n_once, n_rec, r, *more: law.log_terms(
            p, n_once + np.exp(p["phi"] * np.log(r)) * n_rec, *more
        ),
        grids={name: grid[::2] for name, grid in law.grids.items()} | {"phi": np.array([0.0, 0.5, 1.0])},
        fixed=(once, *law.fixed),
        may_be_zero=(once,),  # a fully looped model runs nothing once
        formula=law.formula.replace("N", f"({once} + r^phi {rec})"),
    )


#: L = E + A (n_once + r^phi n_rec)^-alpha + B D^-beta (000, Eq. 5)
JOINT = dataclasses.replace(
    looped(CHINCHILLA),
    name="joint",
    grids={"alpha": GRID["alpha"][::2], "beta": GRID["beta"][::2], "phi": np.linspace(-1, 2, 10)},
)


def joint(phi: float | None = None) -> Law:
    """``JOINT``, or with phi held, which then a single r may tell."""
    if phi is None:
        return JOINT
    return dataclasses.replace(hold(JOINT, phi=number("phi", phi, PHI)), fixed=(*JOINT.fixed, "r"))


#: the joint law at one D, whose term E holds there
JOINT_AT_ONE_D = Law(
    "joint at one D",
    ("n_once", "n_rec", "r"),
    {"A": AMPLITUDE, "E": FLOOR},
    {"alpha": EXPONENT, "phi": PHI},
    lambda p, n_once, n_rec, r: [-p["alpha"] * np.log(n_once + np.exp(p["phi"] * np.log(r)) * n_rec), 0],
    {"alpha": GRID["alpha"], "phi": np.linspace(-1, 2, 10)},
    ("n_once",),
    ("n_once",),
    "L = E + A (n_once + r^phi n_rec)^-alpha",
)


def coupled(law: Law, coupling: float | str = 1) -> Law:
    """The law with its terms in A and B, of parameters and of data, coupled: L = E + ((A N^-alpha)^(1/c) + (B
    D^-beta)^(1/c))^c. coupling: a number, the c; 1, which is the law itself; or "free", so that c is fitted.

    A and alpha are those of a model that has all data, B and beta those of data for a model of any size. Busbridge et
    al. (2025, arXiv 2502.08606) and Videau et al. (2026, arXiv 2608.07222) fit this form to plain models; with c = beta
    and no E it is that of Kaplan et al. (2020, Eq. 1.5)."""
    if isinstance(coupling, str) and coupling != "free":
        raise InputError(f"coupling: {coupling!r} is not known, give a number or 'free'")
    if coupling == 1:
        return law
    free = dataclasses.replace(
        law,
        name=f"coupled {law.name}",
        shapes={**law.shapes, "c": COUPLING},
        grids={**law.grids, "c": np.array([0.2, 0.4, 0.7, 1.0])},
        coupled=("A", "B"),
        formula=re.sub(r"(A \S+|A \(.*?\)\S+) \+ (B \S+)", r"((\1)^(1/c) + (\2)^(1/c))^c", law.formula),
    )
    return free if coupling == "free" else hold(free, c=number("coupling", coupling, COUPLING))


def hold(law: Law, **values: float) -> Law:
    """The law with some of its parameters held at these values, so that a fit moves the others alone."""
    unknown = values.keys() - law.amplitudes.keys() - law.shapes.keys()
    if unknown:
        raise InputError(f"{min(unknown)}: is not a parameter of the {law.name} law")
    values = {name: number(name, x, HELD if name in law.shapes else POSITIVE) for name, x in values.items()}
    amplitudes = {name: (np.log(values[name]),) * 2 if name in values else box for name, box in law.amplitudes.items()}
    shapes = {name: (values[name],) * 2 if name in values else box for name, box in law.shapes.items()}
    return dataclasses.replace(
        law,
        name=f"{law.name}, {', '.join(values)} held",
        amplitudes=amplitudes,
        shapes=shapes,
        grids=law.grids | {name: np.array([values[name]]) for name in values if name in law.shapes},
    )


def sharing(law: Law, name: str, groups: int) -> Law:
    """The law of so many groups of points as one law: each group has its own parameters, called by their names and its
    number, but ``name``, which all share. The last input, ``group``, says which group a point belongs to."""

    def called(parameter: str, group: int) -> str:
        return parameter if parameter == name else f"{parameter} {group}"

    def log_terms(p: dict[str, np.ndarray], *inputs: np.ndarray) -> Terms:
        *of_law, group = inputs
        found: dict[str, np.ndarray | float] = {}
        for g in range(groups):
            terms = law.log_terms({shape: p[called(shape, g)] for shape in law.shapes}, *of_law)
            for amplitude, term in zip(law.amplitudes, terms, strict=True):
                key = called(amplitude, g)
                found[key] = np.where(group == g, term, found.get(key, ABSENT))
        return [*found.values()]

    return Law(
        f"{law.name}, one {name}",
        (*law.inputs, "group"),
        {called(amplitude, g): box for g in range(groups) for amplitude, box in law.amplitudes.items()},
        {called(shape, g): box for g in range(groups) for shape, box in law.shapes.items()},
        log_terms,
        may_be_zero=(*law.may_be_zero, "group"),
        formula=law.formula,
    )


#: n_eff: the parameters with all loops unrolled (001, App. "Fitting a Parametric Function")
PARCAE = Law(
    "Parcae",
    ("n_eff", "D"),
    CHINCHILLA.amplitudes,
    {"a": EXPONENT, "b": EXPONENT},
    lambda p, n_eff, D: [-p["a"] * np.log(n_eff), -p["b"] * np.log(D), 0],
    {"a": np.linspace(0.05, 1.5, 12), "b": np.linspace(0.05, 1.5, 12)},
    formula="L = E + A n_eff^-a + B D^-b",
)

RATE = (1e-4, 20.0)

#: saturating in the test-time loops (001, App. "Choice of Functional Form", a)
SATURATION = Law(
    "saturating exponential",
    ("T",),
    {"L_inf": FLOOR, "Z": (-20.0, 20.0)},
    {"z": RATE},
    lambda p, T: [0, -p["z"] * T],
    {"z": np.geomspace(0.01, 5, 40)},
    formula="L = L_inf + Z exp(-z T)",
)

#: its rivals there: b, c and d
SHIFTED_POWER = Law(
    "shifted power",
    ("T",),
    SATURATION.amplitudes,
    {"z": RATE},
    lambda p, T: [0, -p["z"] * np.log(1 + T)],
    {"z": np.geomspace(0.05, 10, 40)},
    formula="L = L_inf + Z (1 + T)^-z",
)
POWER_WITH_FLOOR = Law(
    "power with floor",
    ("T",),
    SATURATION.amplitudes,
    {"z": RATE},
    lambda p, T: [0, -p["z"] * np.log(T)],
    {"z": np.geomspace(0.05, 10, 40)},
    formula="L = L_inf + Z T^-z",
)
POWER = Law(
    "power",
    ("T",),
    {"Z": (-20.0, 20.0)},
    {"z": (-5.0, 20.0)},
    lambda p, T: [-p["z"] * np.log(T)],
    {"z": np.linspace(-2, 3, 26)},
    formula="L = Z T^-z",
)


#: the unified law of 001
UNIFIED = Law(
    "unified",
    ("n_eff", "D", "mu_rec", "T"),
    {"E": FLOOR, "X": AMPLITUDE, "Y": AMPLITUDE, "Z": (-20.0, 20.0)},
    {"x": EXPONENT, "y": EXPONENT, "z": (1e-4, 100.0), "gamma": (-1.0, 3.0)},
    lambda p, n_eff, D, mu_rec, T: [
        0,
        -p["x"] * np.log(n_eff),
        -p["y"] * np.log(D),
        -p["z"] * np.exp(-p["gamma"] * np.log(mu_rec)) * T,
    ],
    {
        "x": np.array([0.1, 0.3, 0.6, 1.0]),
        "y": np.array([0.1, 0.3, 0.6, 1.0]),
        "z": np.geomspace(0.1, 40, 12),
        "gamma": np.array([0.0, 0.5, 1.0, 1.5]),
    },
    formula="L = E + X n_eff^-x + Y D^-y + Z exp(-z mu_rec^-gamma T)",
)


def unified(gamma: float | None = None) -> Law:
    """``UNIFIED``, or with gamma held, which then a single mu_rec may tell."""
    return UNIFIED if gamma is None else dataclasses.replace(hold(UNIFIED, gamma=gamma), fixed=("mu_rec",))
