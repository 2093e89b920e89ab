"""``dtbench schema``: what a scenario file may say, for editors."""

from dtbench.cli.console import print_json


def schema() -> None:
    """Print the JSON Schema of a scenario file, for completion and explanations in an editor.

    Save it beside your scenarios, `dtbench schema > scenarios/schema.json`, and write, on line 2 of a scenario, under
    its question: `# yaml-language-server: $schema=schema.json`.
    """
    from dtbench.scenario.json_schema import make_file_schema

    print_json(make_file_schema())
