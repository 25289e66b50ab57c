"""One run: the loop, the optimisers, the evaluation."""

from lib.train.loop import train as train
