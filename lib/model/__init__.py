"""The looped model: by composition of layers, injection, depth rule and head."""

from lib.model.looped import LoopedLM, load_weights

__all__ = ["LoopedLM", "load_weights"]
