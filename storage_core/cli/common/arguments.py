"""Arguments and options that several commands share, and the store that PATH names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from ...arguments import byte_size, local_path, milliseconds
from ...config import StoreConfig, setting_value
from ...errors import LayoutNotFoundError, StorageError
from ...layouts.registry import LAYOUT_NAMES
from ...store.store import Store
from ...types import IsolationLevel

Function = TypeVar("Function", bound=Callable[..., Any])
LAYOUTS = click.Choice(LAYOUT_NAMES)
ISOLATION = click.Choice(get_args(IsolationLevel))


class LocalFile(click.File):
    """A file by its local path or ``file:`` URI, or ``-`` for standard input and output."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            named = isinstance(value, str) and value != "-"
            return super().convert(local_path(value) if named else value, param, ctx)
        except LayoutNotFoundError as error:
            self.fail(str(error), param, ctx)


def size_option(text: str) -> int:
    """Bytes, as the type of an option: a number, or such as ``64MiB``."""
    return _amount(byte_size(text), 1, text, "64MiB")


def duration_option(text: str) -> int:
    """Milliseconds, as the type of an option: a number, or such as ``12h``."""
    return _amount(milliseconds(text), 0, text, "12h")


def _amount(found: int | None, low: int, text: str, example: str) -> int:
    if found is None or found < low:
        raise click.BadParameter(
            f"{text!r} is neither a number of {low} or more nor such as {example}."
        )
    return found


def names_option(text: str) -> tuple[str, ...]:
    """Names that commas separate, as the type of an option."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
dry_run = click.option(
    "--dry-run", "-n", is_flag=True, help="Only show what would be done; change nothing."
)
partition = click.option(
    "--partition", "-p", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)
isolation = click.option(
    "--isolation",
    type=ISOLATION,
    default="read_committed",
    metavar="LEVEL",
    help="read_committed (default), read_uncommitted or log_end, for a broker's directory.",
)


def layout_option(name: str, what: str, *, auto: str) -> Callable[[Function], Function]:
    """An option that takes the name of a layout; ``auto`` says what the default does."""
    names = [f"auto ({auto})", *LAYOUT_NAMES[1:]]
    return click.option(
        name,
        type=LAYOUTS,
        default="auto",
        metavar="LAYOUT",
        help=f"{what}: {', '.join(names[:-1])} or {names[-1]}.",
    )


def complete_topic(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """The topics of the store at the PATH that is already on the command line."""
    path = ctx.params.get("path")
    try:
        names = [] if path is None else Store.open(path).topics()
    except (StorageError, OSError):
        names = []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


topic = click.argument("topic", shell_complete=complete_topic)
optional_topic = click.argument("topic", required=False, shell_complete=complete_topic)
PLACE = click.Path(file_okay=False)
path = click.argument("path", type=PLACE)
storage = click.option(
    "--storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the object store at a URL, such as endpoint=…; may be repeated. Put keys "
    "into the environment instead: others may see this command line.",
)


def storage_options(pairs: Sequence[str]) -> dict[str, str] | None:
    """``NAME=VALUE`` pairs as options of an object store; None if there are none.

    Raises:
        click.BadParameter: a pair has no equals sign. It may be a key, so it is not shown.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter("an option is not NAME=VALUE.", param_hint="--storage")
        found[name.strip().removeprefix("storage.")] = value
    return found or None


class Place:
    """The store that a command line names, to be opened."""

    def __init__(self, path: str, storage: Sequence[str], **how: Any) -> None:
        self.path = path
        self.storage = storage_options(storage)
        self.config = StoreConfig.from_environment()
        self._how = how

    def open(self) -> Store:
        return Store.open(self.path, config=self.config, storage=self.storage, **self._how)


def with_place(function: Function) -> Function:
    """Add PATH, --layout, --internal-topics and --storage to a command and pass it the place."""

    @path
    @layout_option("--layout", "Layout of the directory", auto="detect it")
    @click.option(
        "--internal-topics", is_flag=True, help="Include a broker's internal topics (__…)."
    )
    @storage
    @functools.wraps(function)
    def command(
        path: str, layout: str, internal_topics: bool, storage: tuple[str, ...], **rest: Any
    ) -> Any:
        level = rest.pop("isolation", "read_committed")
        place = Place(
            path, storage, layout=layout, isolation=level, internal_topics=internal_topics
        )
        return function(place, **rest)

    return command  # type: ignore[return-value]


def with_store(function: Function) -> Function:
    """Add what ``with_place`` adds to a command and pass it the open store."""

    @functools.wraps(function)
    def command(place: Place, **rest: Any) -> Any:
        with place.open() as store:
            return function(store, **rest)

    return with_place(command)  # type: ignore[return-value]


def chosen_partitions(store: Store, topic: str, partition: int | None) -> list[int]:
    """The given partition, or all partitions of the topic.

    Raises:
        PartitionNotFoundError: the topic has no partition with this number.
    """
    if partition is None:
        return list(range(store.topic(topic).partitions))
    store.start_offset(topic, partition)
    return [partition]


def parse_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """``name=value`` pairs with each value in its setting's type; None for ``default``.

    Raises:
        click.BadParameter: a pair has no equals sign, or no value.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE.", param_hint="--set")
        settings[name] = None if value == "default" else setting_value(name, value)
        if settings[name] is None and value != "default":
            raise click.BadParameter(
                f"{pair!r} has no value. Use {name}=default for the store's own value.",
                param_hint="--set",
            )
    return settings
