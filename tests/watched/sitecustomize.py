"""``precision: auto`` comes to what AUTO_PRECISION says, in every process that has this folder in its PYTHONPATH.

It is bf16-mixed where a machine has the instructions and fp32 elsewhere: this is how the tests see both on any machine.
Without the instructions bf16 is emulated, slower and to the same accuracy.
"""

import importlib.abc
import importlib.machinery
import os
import sys


class Forced(importlib.abc.MetaPathFinder):
    """Loads lib.config, and then says in its place what this machine's precision is."""

    def find_spec(self, name, path, target=None):
        if name != "lib.config":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def forced(module):
            load(module)
            module.native_precision = lambda: os.environ["AUTO_PRECISION"]

        spec.loader.exec_module = forced
        return spec


if os.environ.get("AUTO_PRECISION"):
    sys.meta_path.insert(0, Forced())
