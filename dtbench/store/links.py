"""Links inside a run's folder: whoever made the folder chose where they lead, so none is followed."""

import os
from pathlib import Path

from dtbench.errors import StoreError


def refuse_links(folder: Path) -> None:
    """Refuse a folder with a link in it; the folder's own name may be one, which is its user's choice.

    Raises:
        StoreError: names the first.
    """
    for parent, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(parent, name)
            if path.is_symlink():
                instead = "put what it leads to in its place"
                raise StoreError(f"{path}: is a link, and links in a run's folder are not followed; {instead}")
