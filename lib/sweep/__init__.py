"""Many runs: what is missing is trained, here or on Ray, and what is measured on them."""

from lib.sweep.training import sweep as sweep
