"""Which function asked for a collective: read from the stack of the thread that issues it, in PROFILED steps only.

::

    <module>            train.py
      train_step        train.py
        sum_losses      train.py         <- asked
          all_reduce    torch: carries out what it is told to, as dtbench and wrappers of ``torch.distributed`` do
            call        dtbench

What torch runs by itself while a person's function runs was not asked for by that: the hooks of the autograd engine,
of a module's call and of an optimizer's step, and compiled graphs. On CPU the engine even runs on the thread that
called ``backward``. There the walk ends, and no function asked.
"""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Final

_RUNS_BY_ITSELF: Final = re.compile(
    r"torch\.(autograd\.graph|nn\.modules\.module|optim\.optimizer|_functorch|_inductor)\b"
)
_CARRIES_OUT: Final = re.compile(
    r"(torch|dtbench|deepspeed\.(comm|utils)|accelerate\.(accelerator|state|utils)"
    r"|(lightning\.(fabric|pytorch)|lightning_fabric|pytorch_lightning)\.(strategies|utilities))\b"
)
_PART: Final = re.compile(r"<(listcomp|setcomp|dictcomp|genexpr)>")
"""Frames of what is a part of the function that is written around it."""
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
"""What torch.compile makes of the rest of a function, after something in it that it does not compile."""
_TOP_LEVEL: Final = "<module>"


def find_caller(frame: FrameType | None) -> str:
    """Name the innermost function from a frame outwards that asked; empty text: none did.

    By its module, a script's by the name of its file, and what it is called there: ``train.sum_losses``. The top level
    of a file is called as the file is: ``train.py``.
    """
    while frame is not None:
        module = _name_module(frame)
        if _RUNS_BY_ITSELF.match(module):
            return ""
        if not _PART.fullmatch(frame.f_code.co_name) and not _carries_out(module):
            return _name_function(frame, module)
        frame = frame.f_back
    return ""


def _carries_out(module: str) -> bool:
    """Tell whether functions of a module ask for nothing of their own; what has no module was made by a program."""
    is_ours = _CARRIES_OUT.match(module) is not None
    return is_ours or not module or module.partition(".")[0] in sys.stdlib_module_names


def _name_module(frame: FrameType) -> str:
    """Give the module that a frame is of: of what was started with ``python -m`` its own name, of a script its stem."""
    name = str(frame.f_globals.get("__name__", ""))
    if name != "__main__":
        return name
    spec = frame.f_globals.get("__spec__")
    return str(spec.name) if spec is not None else Path(frame.f_globals.get("__file__", name)).stem


def _name_function(frame: FrameType, module: str) -> str:
    code = frame.f_code
    if code.co_name == _TOP_LEVEL:
        return Path(frame.f_globals.get("__file__", module)).name
    function = _RESUMED.sub(r"\1", code.co_qualname)
    return f"{module}.{function}"
