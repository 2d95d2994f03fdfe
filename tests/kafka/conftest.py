"""These tests run a real broker and need its clients: ``make test-kafka`` has both."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("confluent_kafka") else ["test_real_broker.py", "test_running.py"]
