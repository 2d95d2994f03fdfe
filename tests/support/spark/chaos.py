"""Every scenario in which a process of Spark dies at a named point, and the test that plays it.

The points of the streaming source and sink are those of ``killing.py``; of batch jobs, those of
``faulty_source.py``. ``pytest -m chaos`` plays them all.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.spark.killing import SINK_STEPS, SOURCE_STEPS


class Scenario(NamedTuple):
    """Who dies where, and which test shows that nothing is lost, doubled or mixed."""

    who: str
    where: str
    test: str


_ANY_STEP = "test_a_worker_killed_at_any_step_costs_no_record_and_doubles_none"
_NO_ABORT = "test_a_chain_of_queries_killed_at_every_step_without_an_abort_is_exactly_once"
_FIRST_BATCH = "test_the_start_of_a_query_holds_across_a_kill_in_its_first_batch"
_JVM = "test_a_chain_of_queries_killed_with_its_jvm_in_the_middle_of_commits_is_exactly_once"
_DRIVER = "test_a_commit_whose_driver_was_killed_happens_whole_or_not_at_all"
_NEW_COLUMNS = "test_rows_and_their_new_columns_arrive_once_whenever_the_sink_is_killed"
_FOREIGN = "test_records_of_a_broker_outlive_a_killed_job_and_the_next_one"
_TASKS = "test_a_task_that_fails_twice_and_a_killed_worker_write_once"
_MACHINES = "test_a_killed_worker_and_a_killed_driver_cost_and_double_no_record"
_AGAIN = "test_machines_that_are_killed_again_and_again_cost_and_double_no_record"
_HOSTS = "test_hosts_with_networks_of_their_own_need_no_shared_directory"
_CLUSTER = "test_executors_in_other_processes_write_and_read_and_one_that_is_killed_writes_once"

SCENARIOS: tuple[Scenario, ...] = (
    *(Scenario("source worker", step, _ANY_STEP) for step in SOURCE_STEPS),
    *(Scenario("task or commit worker", step, _ANY_STEP) for step in SINK_STEPS),
    *(
        Scenario("commit worker, nobody aborts", step, _NO_ABORT)
        for step in (
            "before stage",
            "after stage",
            "after intent",
            "after apply",
            "after ledger",
            "before commit log",
        )
    ),
    Scenario("source worker, first batch", "in hand-over", _FIRST_BATCH),
    Scenario("task worker, first batch", "before stage", _FIRST_BATCH),
    *(
        Scenario("JVM and all workers of a query", step, _JVM)
        for step in ("after intent", "after apply", "before commit log")
    ),
    Scenario("driver and JVM of a batch job", "before intent", _DRIVER),
    Scenario("driver and JVM of a batch job", "after intent", _DRIVER),
    Scenario("driver and JVM, broker's directory", "after intent", _DRIVER),
    *(
        Scenario("task or commit worker, new columns", step, _NEW_COLUMNS)
        for step in ("after stage", "after intent", "after publish")
    ),
    Scenario("commit worker, broker's directory", "half of a write to a log", _FOREIGN),
    Scenario("task", "raises twice, rows staged", _TASKS),
    Scenario("Python worker", "rows staged", _TASKS),
    Scenario("executor JVM", "rows staged", _CLUSTER),
    Scenario("worker and its executor, cluster on an object store", "a micro-batch", _MACHINES),
    Scenario("driver and JVM, cluster on an object store", "a micro-batch", _MACHINES),
    Scenario("drivers and workers, cluster on an object store", "any moment", _AGAIN),
    Scenario("worker, then driver, hosts with own networks", "a micro-batch", _HOSTS),
)
