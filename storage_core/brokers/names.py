"""File names of the brokers' directories; see ``layouts.broker_names``."""

from ..layouts.broker_names import STATE_DIRECTORY as STATE_DIRECTORY
