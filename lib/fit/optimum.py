"""The optimum of a law on data, exactly: Newton's method inside the law's box, from the best cells of a grid of shapes.

The objective is sum_i w_i h(log L_fit(x_i) - log L_i), h Huber's loss. For fixed shapes a law is linear in its
amplitudes, so that a start is a linear least-squares problem in each cell of the grid.
"""

import itertools

import numpy as np
from numpy import ndarray

from lib.fit.laws import Law

DELTA = 1e-3  # of Huber's loss (000 and 001)
TRIED = 10  # Newton steps after which starts are compared
STARTS = 6
STEP = 1e-30  # of complex differentiation, which loses no digits however small the step is


def huber(residuals: ndarray, delta: float) -> ndarray:
    """r^2 / 2 up to delta, a line from there on."""
    r = np.abs(residuals)
    inside = np.minimum(r, delta)
    return inside * (r - inside / 2)


class Problem:
    """Objective and derivatives of a law on data, in theta = (log amplitudes, shapes), each point with a weight."""

    def __init__(self, law: Law, inputs: list[ndarray], loss: ndarray, weights: ndarray, delta: float):
        self.law, self.inputs, self.log_loss, self.weights, self.delta = law, inputs, np.log(loss), weights, delta
        self.k, self.shapes = len(law.amplitudes), list(law.shapes)
        self.low, self.high = np.array([*law.amplitudes.values(), *law.shapes.values()]).T
        # what every Newton step needs alike is made once: the points are few, so that numpy's calls are what takes time
        self._steps = np.vstack([np.zeros(len(self.shapes)), 1j * STEP * np.eye(len(self.shapes))])
        self._G = np.zeros((self.k + len(self.shapes), self.k, len(loss)))  # d (a_j + g_j) / d theta
        self._G[np.arange(self.k), np.arange(self.k)] = 1

    def log_terms(self, shapes: ndarray) -> ndarray:
        """g [k, ..., n] of shapes [..., q]."""
        p = {name: shapes[..., i, None] for i, name in enumerate(self.shapes)}
        g = np.empty((self.k, *shapes.shape[:-1], len(self.log_loss)), dtype=shapes.dtype)
        for j, term in enumerate(self.law.log_terms(p, *self.inputs)):
            g[j] = term
        return g

    def residuals(self, theta: ndarray) -> ndarray:
        """log L_fit - log L [n], a log-sum-exp of the terms."""
        g = theta[: self.k, None] + self.log_terms(theta[self.k :])
        top = g.max(0)
        return top + np.log(np.exp(g - top).sum(0)) - self.log_loss

    def value(self, residuals: ndarray) -> ndarray:
        return huber(residuals, self.delta) @ self.weights

    def derivatives(self, theta: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """Gradient [p], Hessian [p, p] and Jacobian [p, n] of the residuals. The Hessian leaves out the second
        derivatives of g, which vanish for shapes that enter linearly and are small at the optimum."""
        k, G = self.k, self._G
        at = self.log_terms(theta[k:] + self._steps)
        G[k:] = at[:, 1:].imag.swapaxes(0, 1) / STEP
        g = theta[:k, None] + at[:, 0].real
        top = g.max(0)
        share = np.exp(g - top)
        total = share.sum(0)
        share /= total  # of each term in the loss
        residuals = top + np.log(total) - self.log_loss
        J = (G * share).sum(1)
        psi = self.weights * np.minimum(np.maximum(residuals, -self.delta), self.delta)  # np.clip takes longer
        inside = self.weights * (np.abs(residuals) <= self.delta)
        flat = (G * (share * psi)).reshape(len(G), -1)
        second = flat @ G.reshape(len(G), -1).T - (J * psi) @ J.T
        return J @ psi, (J * inside) @ J.T + second, J


def starts(problem: Problem, best: int = STARTS) -> list[ndarray]:
    """The best cells of the grid of shapes, with amplitudes by linear least squares on relative residuals: ``best`` of
    all, and, where more than one is asked for, the best for each value of each shape, since the best of all may lie in
    one valley."""
    grids = [problem.law.grids.get(n, np.linspace(low, high, 8)) for n, (low, high) in problem.law.shapes.items()]
    shapes = np.array(list(itertools.product(*grids)))
    g = problem.log_terms(shapes)  # [k, cells, n]
    centre = g.mean(-1, keepdims=True)
    f = np.exp(np.minimum(g - centre, 300) - problem.log_loss) * np.sqrt(problem.weights)
    normal = np.einsum("jcn,icn->cji", f, f)
    normal += 1e-9 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(problem.k)
    amplitudes = np.linalg.solve(normal, np.einsum("jcn,n->cj", f, np.sqrt(problem.weights))[..., None])[..., 0]
    # a term that least squares would rather subtract starts at a hundredth of the loss
    least = 0.01 / np.maximum(f.mean(-1).T, 1e-300)
    log_a = np.log(np.maximum(amplitudes, least)) - centre[..., 0].T
    theta = np.clip(np.hstack([log_a, shapes]), problem.low, problem.high)
    full = theta[:, : problem.k].T[..., None] + g
    top = full.max(0)
    values = problem.value(top + np.log(np.exp(full - top).sum(0)) - problem.log_loss)
    order = np.argsort(values, kind="stable")
    chosen = list(order[:best])
    if best > 1:
        for column in shapes.T:
            chosen += [order[column[order] == value][0] for value in np.unique(column)]
    return list(theta[list(dict.fromkeys(chosen))])


def minimum(problem: Problem, starts: list[ndarray]) -> ndarray:
    """The best of Newton's method from these starts: of many, those that a few steps leave ahead are followed to the
    end. Small deltas are approached through larger ones."""
    if len(starts) > STARTS:
        tried = sorted((newton(problem, start, TRIED) for start in starts), key=lambda end: end[1])
        starts = [theta for theta, _ in tried[:STARTS]]
    delta = problem.delta
    if delta < DELTA:
        for step in np.geomspace(DELTA, delta, 10):
            problem.delta = step
            starts = [min((newton(problem, start) for start in starts), key=lambda end: end[1])[0]]
        return starts[0]
    return min((newton(problem, start) for start in starts), key=lambda end: end[1])[0]


def newton(problem: Problem, theta: ndarray, steps: int = 400) -> tuple[ndarray, float]:
    """Damped Newton inside the box: parameters that push against their bound rest, negative curvature is turned, and
    damping is in units of the curvature that each point would have inside delta."""
    value, damping = float(problem.value(problem.residuals(theta))), 1e-3
    for _ in range(steps):
        gradient, hessian, J = problem.derivatives(theta)
        free = ~(((theta <= problem.low) & (gradient > 0)) | ((theta >= problem.high) & (gradient < 0)))
        if not free.any():
            break
        scale = np.sqrt(np.maximum(J**2 @ problem.weights, 1e-300))[free]
        curvature, axes = np.linalg.eigh(hessian[free][:, free] / (scale[:, None] * scale))
        along = axes.T @ (gradient[free] / scale)
        promised = (along**2 / (np.abs(curvature) + 1e-12)).sum()
        if along @ along < 1e-30 * max(value, 1e-300) or promised < 1e-15 * value:
            break
        while damping < 1e10:
            trial = theta.copy()
            trial[free] -= (axes @ (along / (np.abs(curvature) + damping))) / scale
            trial = np.minimum(np.maximum(trial, problem.low), problem.high)
            trial_value = float(problem.value(problem.residuals(trial)))
            if trial_value < value:
                break
            damping *= 6
        else:
            break
        theta, value, damping = trial, trial_value, max(damping / 5, 1e-12)
    return theta, value
