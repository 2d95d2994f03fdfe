"""``completion``: a script for the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_CURSUS_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script.

    The script completes commands, options, and topics of the store at PATH.

    \b
    bash: eval "$(cursus completion bash)"            in ~/.bashrc
    zsh:  eval "$(cursus completion zsh)"             in ~/.zshrc
    fish: cursus completion fish > ~/.config/fish/completions/cursus.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "cursus", VARIABLE).source())
