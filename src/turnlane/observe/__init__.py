"""Subscribers to events: log lines and metrics. Nothing else knows the vendors behind them."""
