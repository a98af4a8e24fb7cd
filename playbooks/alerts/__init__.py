"""Alerts: rules on what engines show, one alert an onset and one a recovery, and ways out."""
