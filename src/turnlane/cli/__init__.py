"""What is typed: one file a verb, imported when it is called."""
