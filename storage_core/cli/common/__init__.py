"""What all commands share: arguments, output, and the text forms of records, numbers and times."""
