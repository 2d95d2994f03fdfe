"""What commands share: arguments, tables and progress, numbers and moments as text."""
