"""An answer as terminal text, as Markdown and as HTML."""
