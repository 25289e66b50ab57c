"""A looped model as one of lm-evaluation-harness' own, for any of its tasks, by name:

    python -m lib.tasks.harness --model looped --model_args path=outputs/runs/KEY,loops=8 --tasks hellaswag,arc_easy

path: a run of the store, or a checkpoint (``model.load_weights``) with tokenizer=bytes or a tokenizer.json; loops: T,
mean_loops when it is not given; seed: of a random initial state. The harness reads the arguments, fetches the tasks and
writes the results; everything else is ``lib/decode/continuations.py`` and ``lib/decode/generation.py``. It needs an
extra: pip install -e .[lm-eval]
"""

import json
from pathlib import Path
from typing import Any

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    raise ImportError("lm-eval is not installed, run pip install -e .[lm-eval]") from None

from lib.base import seeds
from lib.base.errors import InputError
from lib.base.files import UNREADABLE
from lib.config import RunConfig
from lib.decode.continuations import score
from lib.decode.generation import Sampling, generate
from lib.decode.inflight import Exit
from lib.tasks.evaluations import Subject, load
from lib.tasks.scoring import encode, laid_out, together

NEW_TOKENS = 256  # of an answer, where a task does not say
#: the names that the harness has for the most tokens of an answer; the first that is stated tells
MOST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
OPTIONS = (*MOST, "until", "do_sample", "temperature", "top_k", "top_p")
PIECE = 32  # tokens after which an answer is searched for its end


@register_model("looped")
class Looped(LM):  # type: ignore[misc]
    """Scores and continues texts after a fixed number of loops. A context that is too long loses its left end."""

    def __init__(
        self,
        path: str,
        loops: int | None = None,
        tokenizer: str = "bytes",
        seed: int = 0,
        batch_size: object = None,
        max_batch_size: object = None,
        device: object = None,
    ):
        """The harness passes a batch size and a device, which are not used: ``score`` and ``load`` choose them."""
        super().__init__()
        self.model, self.tokens = load(*_subject(Path(path), str(tokenizer)))
        self.T, self.seed = self.model.cfg.mean_loops if loops is None else loops, seed
        self.model.loops_of(1, self.T)  # refuses what the model cannot make

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        pairs = encode(self.tokens, [request.args for request in requests])
        questions, places = laid_out(pairs, self.tokens.bos, self.model.cfg.context)
        scored = score(self.model, questions, [self.T], self.seed)[self.T]
        answers = together(scored, places)
        self._tell_of_cut(sum(answer.cut for answer in answers), len(answers))
        return [(-answer.nll, answer.greedy) for answer in answers]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Of an empty text it is 0, the logarithm of certainty."""
        texts = [request.args[0] for request in requests]
        whole = [Instance("loglikelihood", {}, ("", text), 0) for text in texts if text]
        found = iter(self.loglikelihood(whole) if whole else [])
        return [next(found)[0] if text else 0.0 for text in texts]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        for request in requests:
            _check(request.args[1])
        prompts = self.tokens.encode_batch([request.args[0] for request in requests]) if requests else []
        most = [_most(request.args[1]) for request in requests]
        room = self.model.cfg.context
        cut = [len(prompt) + min(n, PIECE, room) > room for prompt, n in zip(prompts, most, strict=True)]
        self._tell_of_cut(sum(cut), len(requests))
        return [self._continue(number, *request.args) for number, request in enumerate(requests)]

    def _tell_of_cut(self, cut: int, of: int) -> None:
        if cut:
            print(
                f"looped: {cut} of {of} contexts lost their left end, the model's context is {self.model.cfg.context}"
            )

    def _continue(self, number: int, context: str, options: dict[str, Any]) -> str:
        """The answer to a context, up to the first text that ends it. Each piece has random numbers of its own."""
        until = options.get("until") or []
        until = [until] if isinstance(until, str) else until
        most = _most(options)
        temperature = options.get("temperature", 1.0) if options.get("do_sample") else 0.0
        prompt = [self.tokens.bos, *self.tokens.encode_batch([context])[0].tolist()]
        found: list[int] = []
        ends_of_text = {token for token in (self.tokens.bos, self.tokens.eos) if token is not None}
        while len(found) < most:
            piece = min(PIECE, most - len(found), self.model.cfg.context)
            given = [*prompt, *found][-(self.model.cfg.context - piece + 1) :]
            draw = int(seeds.stream("harness", self.seed, number, len(found)).integers(2**31))
            sampling = Sampling(
                temperature=temperature, top_k=options.get("top_k") or 0, top_p=options.get("top_p") or 1.0, seed=draw
            )
            (answer,) = generate(self.model, [given], piece, Exit(loops=self.T), sampling, stop=ends_of_text)
            found += answer.tokens
            text = self.tokens.decode(found)
            ends = [text.index(end) for end in until if end in text]
            if ends or answer.stopped:
                return text[: min(ends, default=len(text))]
        return self.tokens.decode(found)


def _check(options: dict[str, Any]) -> None:
    """Raises InputError for an option of generation that changes nothing here."""
    if unknown := [name for name in options if name not in OPTIONS]:
        raise InputError(f"generation_kwargs: {', '.join(unknown)} unknown here, use {', '.join(OPTIONS)}")


def _most(options: dict[str, Any]) -> int:
    """How many tokens an answer has at most."""
    stated = [options[name] for name in MOST if options.get(name) is not None]
    return int(stated[0]) if stated else NEW_TOKENS


def _subject(path: Path, tokenizer: str) -> tuple[Subject, str]:
    """The run or checkpoint at ``path``, and the store that it is in."""
    if not path.exists():
        raise InputError(f"path: there is no {path}, give a run of outputs/runs or a checkpoint")
    if (path / "result.json").exists():
        try:
            cfg = RunConfig(**json.loads((path / "config.json").read_text()))
        except UNREADABLE as error:
            raise InputError(f"path: the run {path} cannot be read ({error}), restore it or train it again") from None
        return Subject.of_run(cfg), str(path.parent)
    return Subject.of_checkpoint(path, tokenizer), ""


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
