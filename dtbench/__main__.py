"""``python -m dtbench``, where the command ``dtbench`` is not on the path."""

from dtbench.cli.main import main

if __name__ == "__main__":
    main()
