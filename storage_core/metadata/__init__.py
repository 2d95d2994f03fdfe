"""The metadata files of a store: topics, identity, checkpoint, high watermark, consumer groups."""
