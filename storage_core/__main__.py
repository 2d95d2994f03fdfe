"""``python -m storage_core`` is the ``cursus`` command."""

from .cli import main

main()
