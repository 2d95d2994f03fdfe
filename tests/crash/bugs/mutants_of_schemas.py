"""Bugs put into what typed topics add to the engine. See ``mutants.py``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from storage_core.commit import part_validation
from storage_core.commit.commit_state import CommitState
from storage_core.commit.intents import Intent, Intents
from storage_core.commit.protocol import Committer
from storage_core.format import typed_body, typed_frames
from storage_core.io import json_files
from storage_core.io.durable import read_file
from storage_core.log.open_logs import OpenLogs
from storage_core.log.published import PublishedTopics
from storage_core.log.schema_changes import SchemaMerges
from storage_core.metadata import high_watermark
from storage_core.metadata.schema_files import TopicSchemas
from storage_core.schema.fields import SchemaVersion
from storage_core.vfs import Vfs
from tests.crash.bugs.mutants_of_checks import unchecked
from tests.crash.bugs.mutating import AnyChecksum, Mutant
from tests.support.patching import replaced, without


def rows_come_first(patch: pytest.MonkeyPatch) -> None:
    """Rows are published, then their columns."""
    publish = OpenLogs.publish_ends

    def twice(self: OpenLogs, topic: str, ends: Any, **more: Any) -> None:
        publish(self, topic, ends, durably=more["durably"])
        publish(self, topic, ends, **more)

    patch.setattr(OpenLogs, "publish_ends", twice)


def columns_come_first(patch: pytest.MonkeyPatch) -> None:
    """Columns are published, then the rows that bring them."""
    publish = OpenLogs.publish_ends

    def twice(self: OpenLogs, topic: str, ends: Any, **more: Any) -> None:
        if more.get("schema") is not None:
            publish(self, topic, {}, **more)
        publish(self, topic, ends, **more)

    patch.setattr(OpenLogs, "publish_ends", twice)


def intent_lacks_the_schema(patch: pytest.MonkeyPatch) -> None:
    write = Intents.write

    def without_schema(self: Intents, intent: Any) -> None:
        write(self, dataclasses.replace(intent, schemas={}))

    patch.setattr(Intents, "write", without_schema)


def rows_only_are_rolled_forward(patch: pytest.MonkeyPatch) -> None:
    """Whoever finishes the commit of a crashed writer publishes its rows without their columns."""
    roll = Committer.roll_forward

    def rows_only(self: Committer[Any], intent: Any) -> None:
        roll(self, dataclasses.replace(intent, schemas={}))

    patch.setattr(Committer, "roll_forward", rows_only)


def job_publishes_its_own(patch: pytest.MonkeyPatch) -> None:
    """A commit publishes the version of its rows, whatever other writers published since."""

    def own(self: SchemaMerges, topic: str, versions: Any) -> tuple[int, int]:
        current = self._published.current(topic).version
        return current, max(current, *versions)

    patch.setattr(SchemaMerges, "merge", own)


def register(known_below: bool, ids_below: bool) -> Any:
    """Registers with numbers, or ids, that only the published version has not used."""
    original = TopicSchemas.register

    def change(patch: pytest.MonkeyPatch) -> None:
        def forgetful(self: TopicSchemas, after: int, origin: Any, make: Any) -> SchemaVersion:
            published = self.get(after)

            def reusing(known: Sequence[SchemaVersion], number: int, next_id: int) -> SchemaVersion:
                seen = [each for each in known if each.version <= after]
                next_id = published.max_id + 1 if ids_below else next_id
                made: SchemaVersion = make(seen if ids_below else known, number, next_id)
                return made

            if not known_below:
                return original(self, after, origin, reusing)
            made = reusing([published], after + 1, published.max_id + 1)
            found = dataclasses.replace(made, version=after + 1)
            entry = self.registered(after)._replace(schema=found, origin=origin)
            self._known[after + 1] = entry
            self._secure(after + 1)
            return found

        patch.setattr(TopicSchemas, "register", forgetful)

    return change


def pending_columns_are_shown(patch: pytest.MonkeyPatch) -> None:
    """Without a ``watermark`` file readers see the columns of a commit before its rows."""

    def newest(self: PublishedTopics, topic: str) -> int | None:
        found = self._catalog.get(topic)
        return self.schemas(topic).published() if found.is_typed else None

    patch.setattr(PublishedTopics, "schema_of_lost", newest)


def unchecked_schemas(patch: pytest.MonkeyPatch) -> None:
    def read(vfs: Vfs, path: str, limit: int = 1 << 20) -> Any:
        data = read_file(vfs, path, limit)
        if data is None:
            return None
        try:
            fields = json.loads(data)
        except ValueError:
            return json_files.load(data, path)
        fields.pop("crc32c", None)
        return fields

    replaced(json_files.read, read, by=(TopicSchemas,))(patch)


def only_partitions_with_rows_wait(patch: pytest.MonkeyPatch) -> None:
    """Writers of partitions that an intent does not name do not wait for its columns."""

    def names(self: Intent, topic: str | None, partition: int | None) -> bool:
        places = {(part.topic, part.partition) for part in self.partitions}
        return (topic, partition) in places

    patch.setattr(Intent, "names", names)


SCHEMAS: dict[str, Mutant] = {
    "rows of other partitions do not wait for columns": Mutant(
        only_partitions_with_rows_wait, "killed alterers"
    ),
    "an intent that comes back counts as pending": Mutant(
        without(CommitState, "_is_recorded", lambda *_: False), "new columns"
    ),
    "rows are shown before their columns": Mutant(rows_come_first, "new columns"),
    "columns are shown before their rows": Mutant(columns_come_first, "new columns"),
    "the published version has no copy": Mutant(
        without(TopicSchemas, "set_published"), "new columns"
    ),
    "the intent does not name the schema": Mutant(intent_lacks_the_schema, "new columns"),
    "recovery publishes rows without their columns": Mutant(
        rows_only_are_rolled_forward, "new columns"
    ),
    "a commit publishes only its own columns": Mutant(job_publishes_its_own, "columns of many"),
    "the number of a version is used twice": Mutant(register(True, True), "columns of many"),
    "ids of columns that were never published are used again": Mutant(
        register(False, True), "columns of many"
    ),
    "columns are registered whatever became of the topic": Mutant(
        without(TopicSchemas, "_owned", lambda _: nullcontext()), "recreated columns"
    ),
    "a version that is found counts as durable": Mutant(
        without(TopicSchemas, "_secure"), "killed registrars"
    ),
    "columns of a pending commit are shown": Mutant(pending_columns_are_shown, "new columns"),
    "an old intent lowers the schema": Mutant(
        replaced(high_watermark._later, lambda published, wanted: wanted or published),
        "old intents",
    ),
    "statistics are not checked": Mutant(
        unchecked(typed_body.read_statistics), "wrong bits of the head of .log"
    ),
    "the head of typed bodies is not checked": Mutant(
        unchecked(typed_body.read_preamble), "wrong bits of the head of .log"
    ),
    "checksums of schema files are not compared": Mutant(
        unchecked_schemas, "wrong bits of schemas/00000003.json"
    ),
    "the version of a part is not compared with its frames": Mutant(
        replaced(typed_frames.schema_version, AnyChecksum, by=(part_validation._verify,)),
        "parts of other columns",
    ),
    "the columns of a part are not compared": Mutant(
        replaced(part_validation._verify_schema), "parts of other columns"
    ),
}
