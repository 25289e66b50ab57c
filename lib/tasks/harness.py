"""A looped model as one of lm-evaluation-harness' own, for any of its tasks, by name:

    python -m lib.tasks.harness --model looped --model_args path=outputs/runs/KEY,loops=8 --tasks hellaswag,arc_easy

path: a run of the store, or a checkpoint (``model.load_weights``) with tokenizer=bytes or a tokenizer.json; loops: T,
mean_loops when it is not given; seed: of a random initial state. The harness reads the arguments, fetches the tasks and
writes the results; everything else is ``lib/decode/continuations.py`` and ``lib/decode/generation.py``. make tasks
installs it.
"""

from pathlib import Path

from pydantic import AliasChoices, ConfigDict, Field

try:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    raise ImportError("lm-eval is not installed, run make tasks") from None

from lib.base import seeds
from lib.base.errors import Checked, InputError
from lib.base.files import UNREADABLE
from lib.decode.continuations import score
from lib.decode.generation import Exit, Sampling, generate
from lib.store.runs import read_run
from lib.tasks.evaluations import Subject, load
from lib.tasks.scoring import encode, laid_out, together

PIECE = 32  # tokens after which an answer is searched for its end


class Options(Checked):
    """What a task says of its answers, whose most tokens have four names in the harness. A temperature that is stated
    is one to sample at, unless ``do_sample`` says otherwise."""

    model_config = ConfigDict(strict=True)

    max_gen_toks: int = Field(
        256,
        ge=1,
        validation_alias=AliasChoices("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"),
    )
    until: str | list[str] = ""
    do_sample: bool | None = None
    temperature: float | None = Field(None, ge=0)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)


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
        """Of an answer that is empty it is 0, the logarithm of certainty."""
        asked = [request.args for request in requests if request.args[1]]
        questions, places = laid_out(encode(self.tokens, asked), self.tokens.bos, self.model.cfg.context)
        answers = together(score(self.model, questions, [self.T], self.seed)[self.T], places)
        self._tell_of_cut(sum(answer.cut for answer in answers), len(requests))
        found = iter([(-answer.nll, answer.greedy) for answer in answers])
        return [next(found) if request.args[1] else (0.0, True) for request in requests]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        whole = [Instance("loglikelihood", {}, ("", request.args[0]), 0) for request in requests]
        return [found for found, _ in self.loglikelihood(whole)]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        options = [Options(**{name: x for name, x in of.args[1].items() if x is not None}) for of in requests]
        prompts = self.tokens.encode_batch([request.args[0] for request in requests]) if requests else []
        room = self.model.cfg.context
        cut = [
            len(prompt) + min(said.max_gen_toks, PIECE, room) > room
            for prompt, said in zip(prompts, options, strict=True)
        ]
        self._tell_of_cut(sum(cut), len(requests))
        return [self._continue(i, prompt.tolist(), options[i]) for i, prompt in enumerate(prompts)]

    def _tell_of_cut(self, cut: int, of: int) -> None:
        if cut:
            print(
                f"looped: {cut} of {of} contexts lost their left end, the model's context is {self.model.cfg.context}"
            )

    def _continue(self, number: int, context: list[int], options: Options) -> str:
        """The answer to a context, up to the first text that ends it. Each piece has random numbers of its own."""
        until = [options.until] if isinstance(options.until, str) else options.until
        temperature = float(options.do_sample or False) if options.temperature is None else options.temperature
        sampling = Sampling(
            temperature=0.0 if options.do_sample is False else temperature, top_k=options.top_k, top_p=options.top_p
        )
        prompt = [self.tokens.bos, *context]
        found: list[int] = []
        ends_of_text = {token for token in (self.tokens.bos, self.tokens.eos) if token is not None}
        while len(found) < options.max_gen_toks:
            piece = min(PIECE, options.max_gen_toks - len(found), self.model.cfg.context)
            given = [*prompt, *found][-(self.model.cfg.context - piece + 1) :]
            draw = int(seeds.stream("harness", self.seed, number, len(found)).integers(2**31))
            (answer,) = generate(
                self.model, [given], piece, Exit(loops=self.T), sampling.replace(seed=draw), stop=ends_of_text
            )
            found += answer.tokens
            text = self.tokens.decode(found)
            ends = [text.index(end) for end in until if end and end in text]  # as there, an empty one ends nothing
            if ends or answer.stopped:
                return text[: min(ends, default=len(text))]
        return self.tokens.decode(found)


def _subject(path: Path, tokenizer: str) -> tuple[Subject, str]:
    """The run or checkpoint at ``path``, and the store that it is in."""
    path = path.resolve()
    if (path / "result.json").exists():
        try:
            return Subject.of_run(read_run(path).config), str(path.parent)
        except UNREADABLE as error:
            raise InputError(f"path: the run {path} cannot be read ({error}), restore it or train it again") from None
    return Subject.of_checkpoint(path, tokenizer), ""


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
