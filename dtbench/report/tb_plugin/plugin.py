"""The plugin that TensorBoard loads: its routes. A request is answered with JSON, a refusal with JSON and a sentence.

This module is imported whenever TensorBoard starts in this environment: what is heavy is imported by the route that
needs it.
"""

import logging
import os
from collections.abc import Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import Request, Response

from dtbench.report.tb_plugin.answers import ROUTES, Answers
from dtbench.report.tb_plugin.refusal import BROKEN, EXPECTED, NOT_FOUND, Refusal
from dtbench.report.tb_plugin.run_list import RunList
from dtbench.report.tb_plugin.runs import open_log_directory
from dtbench.report.words.visible import spell_controls, spell_controls_of_json
from dtbench.store.layout import FOLDER_VARIABLE

_ENTRY: Final = "/static/index.js"
_STATIC: Final = "/static/*"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css"}
_LOG: Final = logging.getLogger(__name__)


class BoardPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # tensorboard has no types
    """The tab ``dtbench`` of TensorBoard."""

    plugin_name = "dtbench"

    def __init__(self, context: base_plugin.TBContext) -> None:
        # `dtbench tensorboard` gives TensorBoard's own tabs the newest of many runs, and this one all
        self._directory = open_log_directory(os.environ.get(FOLDER_VARIABLE) or context.logdir or "")
        self._answers = None if self._directory is None else Answers(self._directory, RunList(self._directory))

    def get_plugin_apps(self) -> Mapping[str, Callable[..., Any]]:
        """Return the routes."""
        serve = Request.application(self._serve_document)
        return {_ENTRY: _serve_file, _STATIC: _serve_file, **dict.fromkeys(ROUTES, serve)}

    def is_active(self) -> bool:
        """Tell whether there is a run to show, or traces."""
        return self._directory is not None and (self._directory.has_runs() or self._directory.has_traces())

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Say where the page starts; TensorBoard's reload button is for event files, the page looks by itself."""
        return base_plugin.FrontendMetadata(es_module_path=_ENTRY, tab_name="dtbench", disable_reload=True)

    def _serve_document(self, request: Request) -> Response:
        route = "/" + PurePosixPath(request.path).name
        try:
            return _respond(request, self._answer(route, request.args.to_dict()), 200)
        except Refusal as refusal:
            code = 200 if refusal.status in EXPECTED else refusal.status
            return _respond(request, {"error": refusal.sentence, "status": refusal.status}, code)
        except Exception as error:  # noqa: BLE001  a damaged file must reach the page as a sentence, not as a dead tab
            _LOG.exception("%s", spell_controls(request.full_path))
            sentence = f"dtbench could not answer this: {type(error).__name__}: {error}. The server's log says more."
            return _respond(request, {"error": sentence, "status": BROKEN}, BROKEN)

    def _answer(self, route: str, words: Mapping[str, str]) -> object:
        if self._answers is None:
            raise Refusal(
                NOT_FOUND, "TensorBoard was not given a log directory on this machine: start it with --logdir."
            )
        return self._answers.answer(route, words)


@Request.application
def _serve_file(request: Request) -> Response:
    """Serve one of the page's own files; a name that is not one of them is not looked for anywhere."""
    name = PurePosixPath(request.path).name
    found = [
        folder / name for folder in _folders() if folder.is_dir() and name in {file.name for file in folder.iterdir()}
    ]
    kind = _TYPES.get(PurePosixPath(name).suffix)
    if not found or kind is None:
        return _respond(request, {"error": f"There is no file `{name}`.", "status": NOT_FOUND}, NOT_FOUND)
    return _typed(http_util.Respond(request, _read_file(found[0]), kind))


def _read_file(file: Traversable) -> str:
    """Return the text of a file; what other pages have too, with the palette that they have."""
    from dtbench.report.render.html_page import read_look
    from dtbench.report.timeline import script_text

    made = {"look.css": read_look, "timeline.js": script_text}.get(file.name)
    return file.read_text(encoding="utf-8") if made is None else made()


def _folders() -> tuple[Traversable, ...]:
    """Return where the page's files lie: beside this module, and what other pages have too: timeline and look."""
    package = resources.files("dtbench.report")
    return package / "tb_plugin" / "static", package / "timeline", package / "render" / "html_page"


def _respond(request: Request, document: object, status: int) -> Response:
    encoded = spell_controls_of_json(msgspec.json.encode(document))
    return _typed(http_util.Respond(request, encoded, "application/json", code=status))


def _typed(response: Response) -> Response:
    """Return TensorBoard's response a type, which its own modules do not have."""
    return response
