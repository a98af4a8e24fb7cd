"""From the engine's state to a Snapshot: telemetry, meters, ledger, watchdog, machine. No torch."""
