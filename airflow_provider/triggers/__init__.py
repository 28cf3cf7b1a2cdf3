"""Triggers, and the waiting behind them."""
