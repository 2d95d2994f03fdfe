"""The ``where`` of a read: parsed and bound on the driver, then pruning and filtering in tasks."""
