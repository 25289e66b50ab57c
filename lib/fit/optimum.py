"""The optimum of a law on data, exactly: Newton's method inside the law's box, from the best cells of a grid of shapes.

The objective is sum_i w_i h(log L_fit(x_i) - log L_i), h Huber's loss. For fixed shapes a sum is linear in its
amplitudes, so that a start is a linear least-squares problem in each cell of the grid; where terms are coupled, their
sum's solution is scaled. Many sets of losses and weights
at the same inputs, and many starts on one of them, are sought at once: the first axis of every array is theirs, and
those that have arrived rest.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Self

import numpy as np

from lib.fit.laws import Law

DELTA = 1e-3  # of Huber's loss (000 and 001)
TRIED = 15  # trials after which starts are compared
TRIALS = 1000
STARTS = 6
LEAST = 1e-12  # damping
STEP = 1e-30  # of complex differentiation, which loses no digits however small the step is
ROOM = 2**16  # numbers of an array, so that a core's cache holds several


def huber(residuals: np.ndarray, delta: float) -> np.ndarray:
    """r^2 / 2 up to delta, a line from there on."""
    size = np.abs(residuals)
    inside = np.minimum(size, delta)
    return inside * (size - inside / 2)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Objective and derivatives of a law on sets of data that share their inputs [n]: log_loss, and how often each
    point counts, weights [sets, n]; theta = (log amplitudes, shapes) of each set lies between low and high [sets, p].
    """

    law: Law
    inputs: list[np.ndarray]
    log_loss: np.ndarray
    weights: np.ndarray
    low: np.ndarray
    high: np.ndarray
    delta: float

    @classmethod
    def of(
        cls, law: Law, inputs: list[np.ndarray], loss: np.ndarray, delta: float, weights: np.ndarray | float = 1.0
    ) -> Self:
        """Of losses in nats [sets, n], inside the law's box."""
        low, high = (np.broadcast_to(end, (len(loss), len(end))) for end in law.box)
        return cls(law, inputs, np.log(loss), np.broadcast_to(weights, loss.shape), low, high, delta)

    def take(self, sets: np.ndarray) -> Self:
        """These sets [m], in this order; one may come more than once."""
        return dataclasses.replace(
            self, **{name: getattr(self, name)[sets] for name in ("log_loss", "weights", "low", "high")}
        )

    def log_terms(self, shapes: np.ndarray) -> np.ndarray:
        """g [m, k, n] of shapes [m, q]."""
        found = np.empty((len(shapes), len(self.law.amplitudes), self.log_loss.shape[-1]))
        for j, term in enumerate(self.law.log_terms(self._named(shapes), *self.inputs)):
            found[:, j] = term
        return found

    def slopes(self, shapes: np.ndarray) -> np.ndarray:
        """d g / d shape [m, q, k, n] of shapes [m, q]."""
        found = np.zeros((*shapes.shape, len(self.law.amplitudes), self.log_loss.shape[-1]))
        p = self._named(shapes)
        for i, name in enumerate(p):  # one by one: terms without it stay real, and complex numbers take long
            if name != "c" or not self.law.coupled:  # which is in no term
                for j, term in enumerate(self.law.log_terms({**p, name: p[name] + 1j * STEP}, *self.inputs)):
                    found[:, i, j] = np.asarray(term).imag / STEP
        return found

    def _named(self, shapes: np.ndarray) -> dict[str, np.ndarray]:
        return {name: shapes[:, i, None] for i, name in enumerate(self.law.shapes)}

    @functools.cached_property
    def _coupled(self) -> tuple[list[int], int]:
        """Where the coupled terms stand among all, and their c in theta; none where the law is a sum."""
        law = self.law
        on = [i for i, name in enumerate(law.amplitudes) if name in law.coupled]
        return on, law.names.index("c") if on else 0

    def _terms(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logs of terms [sets, k, n] whose sum is the loss: a coupled one is its share p of the whole that they make,
        c log sum exp(g / c); and -log p [sets, coupled, n], the slopes of that by c, before they are weighed by p."""
        k = len(self.law.amplitudes)
        g = theta[:, :k, None] + self.log_terms(theta[:, k:])
        on, at = self._coupled
        if not on:
            return g, g[:, :0]
        c = theta[:, at, None]
        parts = g[:, on] / c[:, None]
        top = parts.max(1)
        whole = top + np.log(np.exp(parts - top[:, None]).sum(1))
        parts -= whole[:, None]
        g[:, on] = (c * whole)[:, None] + parts
        return g, -parts

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        """log L_fit - log L [sets, n], a log-sum-exp of the terms."""
        g, _ = self._terms(theta)
        top = g.max(1)
        return top + np.log(np.exp(g - top[:, None]).sum(1)) - self.log_loss

    def value(self, residuals: np.ndarray) -> np.ndarray:
        """The objective [sets]."""
        return np.einsum("mn,mn->m", huber(residuals, self.delta), self.weights)

    def derivatives(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gradient [sets, p], Hessian [sets, p, p] and Jacobian [sets, p, n] of the residuals. The Hessian leaves out
        the second derivatives of g, which vanish for shapes that enter linearly and are small at the optimum."""
        k = len(self.law.amplitudes)
        (g, by_c), S, (on, at) = self._terms(theta), self.slopes(theta[:, k:]), self._coupled
        top = g.max(1)
        share = np.exp(g - top[:, None])
        total = share.sum(1)
        share /= total[:, None]  # of each term in the loss
        residuals = top + np.log(total) - self.log_loss
        if on:
            S[:, at - k, on] = by_c
        J = np.concatenate([share, (S * share[:, None]).sum(2)], 1)
        psi = self.weights * np.minimum(np.maximum(residuals, -self.delta), self.delta)  # np.clip takes longer
        inside = self.weights * (np.abs(residuals) <= self.delta)
        hessian = (J * (inside - psi)[:, None]) @ J.swapaxes(1, 2)
        if on:  # the whole that they make bends as c log sum exp(g / c) does
            c, of_whole = theta[:, at, None], np.zeros_like(J)
            of_whole[:, on] = share[:, on]
            of_whole[:, k:] = (S[:, :, on] * share[:, None, on]).sum(2)
            size = np.maximum(share[:, on].sum(1), 1e-300)
            hessian += (of_whole * (psi * (1 - 1 / c) / size)[:, None]) @ of_whole.swapaxes(1, 2)
            share[:, on] /= c[:, None]
        share *= psi[:, None]
        bent = S * share[:, None]
        # of the terms themselves, in (amplitudes, shapes): an amplitude moves its own term alone
        hessian[:, range(k), range(k)] += share.sum(-1)
        across = bent.sum(-1)
        hessian[:, k:, :k] += across
        hessian[:, :k, k:] += across.swapaxes(1, 2)
        flat = (*S.shape[:2], k * S.shape[3])
        hessian[:, k:, k:] += bent.reshape(flat) @ S.reshape(flat).swapaxes(1, 2)
        return np.einsum("mpn,mn->mp", J, psi), hessian, J


def starts(problem: Problem, best: int = STARTS) -> tuple[np.ndarray, np.ndarray]:
    """theta [m, p] of the best cells of the grid of shapes, with amplitudes by linear least squares on relative
    residuals, and which set each is for [m]: ``best`` of all, and, where more than one is asked for, the best for each
    value of each shape, since the best of all may lie in one valley."""
    law, sets = problem.law, len(problem.weights)
    grids = [law.grids.get(n, np.linspace(low, high, 8)) for n, (low, high) in law.shapes.items()]
    shapes = np.array(list(itertools.product(*grids)))
    theta, value = np.empty((len(shapes), sets, problem.low.shape[1])), np.empty((len(shapes), sets))
    n = problem.log_loss.shape[-1]
    for some in blocks(np.arange(sets), 8 * n):
        for cells in blocks(np.arange(len(shapes)), len(some) * n):
            at = np.ix_(cells, some)
            theta[at], value[at] = _in_cells(problem.take(some), shapes[cells])
    chosen = [_promising(order, shapes, best) for order in np.argsort(value, axis=0, kind="stable").T]
    of = np.repeat(np.arange(sets), [len(cells) for cells in chosen])
    return theta[np.concatenate(chosen), of], of


def _promising(order: np.ndarray, shapes: np.ndarray, best: int) -> list[int]:
    """Cells, of all in the order of their values."""
    chosen = list(order[:best])
    if best > 1:
        for column in shapes.T:
            chosen += [order[column[order] == value][0] for value in np.unique(column)]
    return list(dict.fromkeys(chosen))


def _in_cells(problem: Problem, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """theta [cells, sets, p] with the shapes of each cell [cells, q], and about its objective [cells, sets]."""
    relative = np.exp(-problem.log_loss)
    g = problem.log_terms(shapes)  # [cells, k, n]
    centre = g.mean(-1)
    f = np.exp(np.minimum(g - centre[..., None], 300))
    normal = (f[:, :, None] * f[:, None]) @ (problem.weights * relative**2).T
    normal = np.moveaxis(normal, -1, 1)  # [cells, sets, k, k]
    right = np.swapaxes(f @ (problem.weights * relative).T, 1, 2)  # [cells, sets, k]
    normal += 1e-9 * np.trace(normal, axis1=2, axis2=3)[..., None, None] * np.eye(f.shape[1])
    amplitudes = np.linalg.solve(normal, right[..., None])[..., 0]
    # a term that least squares would rather subtract starts at a hundredth of the loss
    least = 0.01 * problem.weights.sum(-1)[:, None] / np.maximum(right, 1e-300)
    log_a = np.log(np.maximum(amplitudes, least)) - centre[:, None]
    theta = np.concatenate([log_a, np.broadcast_to(shapes[:, None], (*log_a.shape[:2], shapes.shape[1]))], -1)
    theta = np.clip(theta, problem.low, problem.high)
    predicted = np.exp(theta[..., : f.shape[1]] + centre[:, None]) @ f
    on, at = problem._coupled
    if on:
        c = theta[..., at, None]
        terms = np.exp(theta[..., on] + centre[:, None, on])[..., None] * f[:, None, on]  # [cells, sets, coupled, n]
        whole = (terms ** (1 / c[..., None])).sum(2) ** c
        scale = terms.sum((2, 3)) / whole.sum(-1)
        predicted += scale[..., None] * whole - terms.sum(2)
        theta[..., on] += np.log(scale)[..., None]
    return theta, np.einsum("csn,sn->cs", huber(predicted * relative - 1, problem.delta), problem.weights)


def minimum(problem: Problem, theta: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The best [sets, p] of Newton's method from these starts [m, p] on the sets ``of`` [m]: of many, those that a few
    steps leave ahead are followed to the end."""
    if np.bincount(of).max() > STARTS:
        theta, value = newton(problem.take(of), theta, TRIED)
        ahead = _least(value, of, STARTS)
        theta, of = theta[ahead], of[ahead]
    theta, value = newton(problem.take(of), theta)
    return theta[_least(value, of, 1)]


def _least(value: np.ndarray, of: np.ndarray, most: int) -> np.ndarray:
    """Where the least values of each set stand, at most so many."""
    order = np.lexsort((value, of))
    of = of[order]
    return order[np.arange(len(of)) - np.searchsorted(of, of) < most]


def newton(problem: Problem, theta: np.ndarray, trials: int = TRIALS) -> tuple[np.ndarray, np.ndarray]:
    """Damped Newton inside the box, theta [sets, p] and value [sets]. A trial that is no better is tried again with
    more damping, and the last, which nothing can be told of, is taken as it is."""
    theta, value = theta.copy(), problem.value(problem.residuals(theta))
    active, damping = np.flatnonzero(np.isfinite(value)), np.full(len(theta), 1e-3)
    numbers = max(1, len(problem.law.shapes)) * len(problem.law.amplitudes) * problem.log_loss.shape[1]  # of slopes
    for _ in range(trials):
        for some in blocks(active, numbers):
            here = problem.take(some)
            trial, last = _step(here, theta[some], value[some], damping[some])
            tried = here.value(here.residuals(trial))
            better = ~last & (tried < value[some])
            damping[some] = np.where(better, np.maximum(damping[some] / 5, LEAST), damping[some] * 6)
            damping[some[last]] = np.inf
            theta[some[better | last]] = trial[better | last]
            value[some[better]] = tried[better]
        active = active[damping[active] < 1e10]
    return theta, value


def _step(problem: Problem, theta: np.ndarray, value: np.ndarray, damping: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a step leads that is damped in units of the curvature that each point would have inside delta, and whether
    it is the last [sets]: it promises less than the objective can show. Parameters that push against their bound rest.
    """
    gradient, hessian, J = problem.derivatives(theta)
    free = ~(((theta <= problem.low) & (gradient > 0)) | ((theta >= problem.high) & (gradient < 0)))
    scale = np.sqrt(np.maximum(np.einsum("spn,sn->sp", J**2, problem.weights), 1e-300))
    hessian /= scale[:, :, None] * scale[:, None]
    curvature, axes = np.linalg.eigh(np.where(free[:, :, None] & free[:, None], hessian, np.eye(theta.shape[1])))
    curvature = np.abs(curvature)  # what is negative is turned
    along = np.einsum("sij,si->sj", axes, np.where(free, gradient / scale, 0))
    promised = (along**2 / (curvature + LEAST)).sum(-1)
    last = ((along**2).sum(-1) < 1e-30 * np.maximum(value, 1e-300)) | (promised < 1e-15 * value)
    damping = np.where(last, LEAST, damping)[:, None]
    move = np.einsum("sij,sj->si", axes, along / (curvature + damping)) / scale
    return np.clip(theta - move, problem.low, problem.high), last


def blocks(rows: np.ndarray, numbers: int) -> Iterator[np.ndarray]:
    """Rows of so many numbers each in blocks of at most ROOM numbers, or of one row."""
    some = max(1, ROOM // numbers)
    for begin in range(0, len(rows), some):
        yield rows[begin : begin + some]
