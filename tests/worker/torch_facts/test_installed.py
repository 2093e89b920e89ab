"""The torch that is installed, as it is: where its release is written down, nothing of it differs."""

import re

import pytest
import torch

from dtbench.base.torch_versions import read_torch_release
from dtbench.cli.main import main
from dtbench.worker.torch_facts.facts import TESTED

RELEASE = ".".join(map(str, read_torch_release(torch.__version__)))


@pytest.mark.ranks
@pytest.mark.skipif(not (TESTED / f"{RELEASE}.json").exists(), reason="nobody wrote this release down as tested")
def test_of_a_torch_that_was_tested_nothing_differs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--torch"])
    printed = capsys.readouterr()
    assert not ended.value.code, printed.out
    assert ", 0 differ" in printed.out


def test_no_tested_release_says_where_it_was_installed() -> None:
    written = [path.read_text() for path in TESTED.glob("*.json")]
    assert written
    assert not [text for text in written for _ in re.findall(r"'(?:/|[A-Za-z]:\\)[^']*\.py'|site-packages", text)]
