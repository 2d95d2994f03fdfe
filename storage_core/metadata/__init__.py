"""The store's own small files: topics, identity, checkpoint, high watermark, consumer groups."""
