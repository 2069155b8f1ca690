"""What the backends share that keep their rows in an SQL database."""
