"""Finished runs, on disk or at a URL."""

from lib.store.runs import RunStore

__all__ = ["RunStore"]
