"""Each single sync of the engine, left out alone, must be missed; or it is said why it need not.

The sites are found in the source, so one that is new fails here until a detector is named for it.
"""

from __future__ import annotations

from functools import cache

import pytest

from storage_core.errors import StorageError
from tests.crash.breakers.narrow_cuts import CUTS
from tests.crash.bugs.detectors import MISTAKES, FoundError, detector, detectors, found_by
from tests.crash.bugs.sync_sites import come_to, every_site, left_out
from tests.crash.explorer.exploration import quickly
from tests.support.sizes import FOR_HOURS, SEED

_REPLACED = "replace > replace_file"
# The cheapest detector of each.
NOTICED = {
    "Catalog.create 2 > fsync_dir": "promise of the first boot",
    "Catalog.add_partitions.grown > fsync_dir": "promise after a kill of more partitions",
    "Catalog._prepare 2 > create_file > fsync": "promise of the first boot",
    "Catalog._prepare > fsync_dir": "promise of the first boot",
    "Catalog._make_partition > fsync_dir": "promise of more partitions",
    "Catalog.delete > fsync_dir": "topics",
    f"Catalog._rewrite > {_REPLACED} > fsync": "promise of a setting",
    f"Catalog._rewrite > {_REPLACED} > fsync_dir": "promise of a setting",
    "commit > sync_directories > fsync_dir": "promise after a kill of offsets of a group",
    f"commit > {_REPLACED} > fsync": "promise of offsets of a group",
    f"commit > {_REPLACED} > fsync_dir": "promise of offsets of a group",
    f"create > {_REPLACED} > fsync": "promise of the first boot",
    "Intents.write > sync_directories > fsync_dir": "killed before fsync_dir meta",
    "_replace > replace_file > fsync_dir": "stale slots",
    "Intents.write > replace_file > fsync": "commits",
    "Intents.write > replace_file > fsync_dir": "commits",
    f"Ledger.record > {_REPLACED} > fsync": "commits",
    f"Ledger.record > {_REPLACED} > fsync_dir": "commits",
    "Recovery.run > fsync_dir": "killed before fsync_dir topics/t/1/segments",
    "Recovery._recover_tail > fsync": "appends",
    "Recovery.run > sync_directories > fsync_dir": "killed makers",
    "Replacer.cut_off.drop > fsync_dir": "delete_records around .tomb",
    "Replacer._swap > fsync_dir": "merge around .tomb",
    "drop_segments > fsync_dir": "drop many around unlink",
    "drop_merged > fsync_dir": "every change of a merge",
    "_remove_files > fsync_dir": "drop many",
    "copy_to_new_file > fsync": "repaired syncs",
    "copy_to_new_file > fsync_dir": "failing syncs",
    "cut_back > fsync_dir": "full disk in appends",
    "cut_segment > fsync": "old frames",
    "SegmentRewriter.finish > fsync": "recompress",
    "ActiveSegment.sync_name > fsync_dir": "appends",
    "ActiveSegment._fsync > fsync": "appends",
    "_File.finish > fsync": "commits",
    "TaskFiles.finish > fsync_dir": "commits",
    "TaskFiles.create > sync_directories > fsync_dir": "killed stagers",
    "Tail.adopt_file > fsync_dir": "large commits",
    "Tail._sync_sealed > sync_file > fsync": "sealed segments",
    "make_durable > fsync": "commits",
    "make_durable > fsync_dir": "unsynced names",
    # Typed topics
    "prepare 1 > create_file > fsync": "typed topic",
    "prepare 2 > create_file > fsync": "typed topic",
    "prepare > fsync_dir": "typed topic",
    "TopicSchemas._temporary > create_file > fsync": "new columns",
    "TopicSchemas._create > fsync_dir": "new columns",
    "TopicSchemas._replace > fsync_dir": "new columns",
    f"_Conversion._resume_counting > {_REPLACED} > fsync": "conversions",
    f"_Conversion._resume_counting > {_REPLACED} > fsync_dir": "conversions",
    # Stores of objects
    "VfsBackend._temporary > fsync": "objects",
    "VfsBackend._link > fsync_dir": "objects",
    "VfsBackend.put > fsync_dir": "objects",
    "VfsBackend._prepare > sync_directories > fsync_dir": "objects after a kill",
    "VfsBackend._make_durable > fsync_dir": "objects seen by readers",
    # Brokers' directories
    "BrokerCatalog.delete > fsync_dir": "deleted topics in rustlog",
    "BrokerCatalog._change_identity > replace_file > fsync": "killed makers in rustlog",
    "BrokerCatalog._change_identity > replace_file > fsync_dir": "killed makers in rustlog",
    "BrokerCatalog._sync_folders > fsync_dir": "killed makers in cursus",
    "BrokerCatalog._sync_folders > sync_directories > fsync_dir": "killed makers in rustlog",
    "BrokerCatalog._register > replace_file > fsync": "topics in cursus-broker",
    "BrokerCatalog._register > replace_file > fsync_dir": "topics in cursus-broker",
    "BrokerCompaction.rewritten > fsync": "compaction in cursus-broker",
    "put_in_place > create_file > fsync": "compaction in cursus-broker",
    "put_in_place 1 > fsync_dir": "compaction in cursus-broker",
    "RowFiles._begin_at > fsync_dir": "later beginning in rustlog",
    "RowFiles.sync > sync_file > fsync": "rolls after a kill in rustlog",
    "RowFiles.sync > fsync_dir": "appends in rustlog",
    "RowFiles.sync_all > sync_file > fsync": "unsynced records in rustlog",
    "RowFiles.sync > sync_directories > fsync_dir": "killed makers in rustlog",
    "RowFiles.rewind > keep_head > fsync": "commits in rustlog",
    "RowFiles.rewind 1 > fsync_dir": "rewound commits in rustlog",
    "RowFiles.rewind 2 > fsync_dir": "rewound commits in rustlog",
    "RowFiles._create > fsync_dir": "appends in rustlog",
    "RowFiles.append > fsync_dir": "appends in rustlog",
    "RowFiles._write > fsync": "appends in rustlog",
    "RowFiles._raise_watermark > replace_file > fsync_dir": "high watermarks in cursus-broker",
    "drop_files > fsync_dir": "deletions in rustlog",
}
_LOCKS_FOLDER = "ensure_lock_file > make_directories > fsync_dir"
_LOCKS = ("ensure_lock_file > create_file > fsync", "ensure_lock_file > fsync_dir")
_COVERED = "sync_directories > make_directories > fsync_dir"
_HINT = "never the truth: a damaged, missing or older one makes a recovery longer, no more"
_MARKS = "marks that are lost or older let a compaction do some of its work again"
_NAME = "the name of a deletion marker decides, whatever it holds"
ARGUED_HARMLESS = {
    **{site: "a lock holds nothing, and is made again" for site in every_site() if
       site.endswith(_LOCKS)},
    **{site: "the same folders are synced right after it" for site in every_site() if
       site.endswith(_COVERED)},
    "VfsBackend._temporary > sync_directories > fsync_dir": (
        "no file of tmp/ is needed after a crash, and the next writer makes the folder again"
    ),
    "Catalog.create > sync_directories > fsync_dir": (
        "who writes to a partition first syncs all folders above it"
    ),
    "Catalog._make_partition > make_directories > fsync_dir": (
        "the same folders are synced right after it, or by who asked for partitions"
    ),
    "Catalog._prepare 1 > create_file > fsync": "a lock file is empty",
    "Catalog._prepare 3 > create_file > fsync": (
        "high watermarks that are torn fail their checksum and are worked out from the log"
    ),
    "_replace > replace_file > fsync": (
        "high watermarks that are torn fail their checksum and are worked out from the log"
    ),
    "Catalog._make_partition > create_file > fsync": "a lock file is empty",
    "merge > ensure_lock_file > make_directories > fsync_dir": (
        "the identity is made before the first checkpoint, in the same folder"
    ),
    f"merge > {_REPLACED} > fsync": _HINT,
    f"merge > {_REPLACED} > fsync_dir": _HINT,
    f"CleanerCheckpoint.write > {_REPLACED} > fsync": _MARKS,
    f"CleanerCheckpoint.write > {_REPLACED} > fsync_dir": _MARKS,
    "_Conversion.exclusive > ensure_lock_file > make_directories > fsync_dir": (
        "the folder holds a lock and what is pending below"
    ),
    "create > ensure_lock_file > make_directories > fsync_dir": (
        "the same boot makes `topics` after it, and syncs the root then"
    ),
    f"create > {_REPLACED} > fsync_dir": (
        "the same boot writes the first checkpoint after it, and syncs the folder then; a repair "
        "finds the identity in the topics again"
    ),
    "commit > ensure_lock_file > make_directories > fsync_dir": (
        "who finds no offsets syncs the same folders before he writes some"
    ),
    "first_boot > sync_directories > fsync_dir": (
        "who makes a topic syncs them again, and so does who writes first"
    ),
    "Intents.remove > fsync_dir": (
        "an intent that comes back is finished again, and finds everything done"
    ),
    "Ledger.lock_names > ensure_lock_file > make_directories > fsync_dir": (
        "the folder of the entries is synced before one is written"
    ),
    "Ledger.record > sync_directories > fsync_dir": (
        "the intent is written first, and synced the same folders"
    ),
    "PartitionLog._fail > fsync": "a kill keeps the word, and no reboot believes one",
    "save_tail > save_copy > replace_file > fsync": "bytes nobody was promised",
    "save_tail > save_copy > replace_file > fsync_dir": "bytes nobody was promised",
    "maintenance_lock > ensure_lock_file > make_directories > fsync_dir": (
        "the folder holds nothing but locks"
    ),
    "drop_segments > create_file > fsync": _NAME,
    "drop_merged > create_file > fsync": _NAME,
    "write_hole > create_file > fsync": "the name says which offsets are skipped; it holds nothing",
    **{f"RangeCache.{name} > make_directories > fsync_dir": (
        "what a cache lost is fetched again"
    ) for name in ("__init__", "add")},
    "set_aside 1 > fsync_dir": "an index is checked against the frames it leads to",
    "set_aside 2 > fsync_dir": (
        "what comes back goes on where it did before, or is set aside once more"
    ),
    # Brokers' directories
    "BrokerCatalog.delete > make_directories > fsync_dir": "a folder for what is being deleted",
    "BrokerCatalog._change_identity > sync_directories > fsync_dir": (
        "what a topic's identity is compared with is written by commits, which sync the same folder"
    ),
    "BrokerCatalog._create_logs > make_directories > fsync_dir": (
        "the same folders are synced below"
    ),
    "BrokerCatalog._create_logs > create_file > fsync": "an empty log",
    "RowFiles._create > create_file > fsync": "an empty log",
    "RowFiles._create > make_directories > fsync_dir": (
        "who finds or makes the first file syncs all folders above it"
    ),
    "RowFiles._cut > make_directories > fsync_dir": "bytes nobody was promised",
    "RowFiles._cut > save_copy > replace_file > fsync": "bytes nobody was promised",
    "RowFiles._cut > save_copy > replace_file > fsync_dir": "bytes nobody was promised",
    "put_in_place 2 > fsync_dir": (
        "the index that comes next is put into the same folder, and a stale one is noticed"
    ),
    "RowFiles.rewind > keep_head > fsync_dir": "the same folder is synced after it",
    "RowFiles._cut > fsync": (
        "who finds an end that is not his own syncs it; needed only if it is his own, and a "
        "neighbour was killed in the middle of one write"
    ),
    "RowFiles._raise_watermark > replace_file > fsync": (
        "a high watermark that cannot be read counts for nothing, and all whole records are shown"
    ),
    "put_in_place > replace_file > fsync": "a hint, and a stale one is noticed",
    "put_in_place > replace_file > fsync_dir": (
        "a hint, and a stale one is noticed"
    ),
    "BrokerCompaction.save > make_directories > fsync_dir": _MARKS,
    **dict.fromkeys(
        (
            f"BrokerCatalog._exclusive > {_LOCKS_FOLDER}",
            f"RowLog._locked > {_LOCKS_FOLDER}",
            f"BrokerCompaction.held > {_LOCKS_FOLDER}",
        ),
        "the folder holds nothing but locks, and who writes into the one above it syncs that",
    ),
    f"save_hint > {_LOCKS_FOLDER}": "the folder holds hints that are worked out again",
}  # fmt: skip
ELSEWHERE = {
    # test_unsynced looks up times after it; no story does.
    "Recovery._recover_tail > fsync_dir": "power cut after a cut segment was filled again",
    # test_skip cuts the power at every call of a skip.
    "write_hole > fsync_dir": "power cut in a skip",
    "write_hole > fsync": "power cut in a skip",
    # A promise after a kill takes too long to be kept twice: test_promises has it.
    "Catalog.create 1 > fsync_dir": "promise after a kill of the first boot",
    # What a broker leaves unsynced is not among our stories: test_broker_compaction has it.
    "BrokerCompaction.sync > sync_file > fsync": "order of the calls",
}


def test_every_sync_has_a_detector_or_a_reason() -> None:
    known = [*NOTICED, *ARGUED_HARMLESS, *ELSEWHERE]
    assert sorted(known) == sorted(every_site())


def test_no_two_sites_have_one_name() -> None:
    assert len(set(every_site())) == len(every_site())


@pytest.mark.row(1, 2, 3, 7, 11)
@pytest.mark.parametrize("site", NOTICED)
def test_sync_that_is_left_out_alone_is_missed(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with quickly(SEED):
        left_out(site)(monkeypatch)
        with pytest.raises((FoundError, AssertionError, StorageError)) as caught:
            detector(NOTICED[site])()
    assert not any(mistake in str(caught.value) for mistake in MISTAKES), caught.value


@pytest.mark.parametrize("noticed", ["failing syncs", *CUTS])
def test_short_detectors_notice_nothing_of_the_engine_as_it_is(noticed: str) -> None:
    with quickly(SEED):
        assert found_by(noticed) is None


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("noticed", sorted({*detectors(), *NOTICED.values()}))
def test_detectors_notice_nothing_of_the_engine_as_it_is(noticed: str) -> None:
    with quickly(SEED):
        assert found_by(noticed) is None


@cache
def reached(noticed: str) -> set[str]:
    """The sites that a detector comes to: it cannot miss another."""
    sites: set[str] = set()
    with pytest.MonkeyPatch.context() as patch, quickly(SEED):
        come_to(sites)(patch)
        detector(noticed)()
    return sites


def sites_by_reason() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for site, reason in ARGUED_HARMLESS.items():
        found.setdefault(reason, []).append(site)
    return found


# All sites of one reason at once: what a power cut may leave only grows with syncs that are gone.
@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.skipif(not FOR_HOURS, reason="every reason with every detector takes two hours")
@pytest.mark.parametrize("reason", sites_by_reason())
def test_syncs_that_are_argued_harmless_are_missed_by_nobody(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = sites_by_reason()[reason]
    for noticed in detectors():
        if reached(noticed).isdisjoint(sites):
            continue
        with monkeypatch.context() as patch, quickly(SEED):
            left_out(*sites)(patch)
            assert found_by(noticed) is None, noticed
