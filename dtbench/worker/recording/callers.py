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
_STARTED: Final = ("__main__", "__mp_main__")
"""What a program is called that was started, and in processes that ``multiprocessing`` starts from it."""
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
        if not _PART.fullmatch(frame.f_code.co_name) and not _carries_out(frame, module):
            return _name_function(frame, module)
        frame = frame.f_back
    return ""


def _carries_out(frame: FrameType, module: str) -> bool:
    """Tell whether functions of a module ask for nothing of their own; what has no module was made by a program."""
    is_ours = _CARRIES_OUT.match(module) is not None
    is_pythons = not _is_script(frame) and module.partition(".")[0] in sys.stdlib_module_names
    return is_ours or is_pythons or not module


def _is_script(frame: FrameType) -> bool:
    """Tell whether a frame is of the file that was started, which may have any name: ``profile.py``."""
    return frame.f_globals.get("__name__") in _STARTED and frame.f_globals.get("__spec__") is None


def _name_module(frame: FrameType) -> str:
    """Return the module that a frame is of: of what ``python -m`` started its own name, of a script its stem."""
    name = str(frame.f_globals.get("__name__", ""))
    if _is_script(frame):
        return Path(frame.f_globals.get("__file__", name)).stem
    return str(frame.f_globals["__spec__"].name) if name in _STARTED else name


def _name_function(frame: FrameType, module: str) -> str:
    code = frame.f_code
    if code.co_name == _TOP_LEVEL:
        return Path(frame.f_globals.get("__file__", module)).name
    function = _RESUMED.sub(r"\1", code.co_qualname)
    return f"{module}.{function}"
