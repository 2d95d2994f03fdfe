"""Speed of cursus-spark, each figure next to a baseline measured in the same run."""
