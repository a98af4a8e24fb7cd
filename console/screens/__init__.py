"""Screens: how panels are arranged, and what keys do on them."""
