"""Finished runs, and records of them."""

from lib.store.runs import RunStore

__all__ = ["RunStore"]
