import doctest

import pydantic
import pytest

from lib import errors


def test_the_doctest_holds():
    assert doctest.testmod(errors).failed == 0


def test_every_complaint_is_on_the_one_line():
    class Model(pydantic.BaseModel, extra="forbid"):
        lr: float
        steps: int

    with pytest.raises(pydantic.ValidationError) as error:
        Model(lr="fast", stepps=3)
    line = errors.one_line(error.value, prefix="optim")
    assert "\n" not in line
    assert "optim.lr: input should be a valid number" in line and "got 'fast'" in line
    assert "optim.steps: is required" in line and "optim.stepps: unknown name" in line


@pytest.mark.parametrize("kind", [errors.InputError, errors.DiskFull])
def test_ipython_shows_the_line_alone(kind):
    assert kind("lr: wrong, mend it")._render_traceback_() == [f"{kind.__name__}: lr: wrong, mend it"]
