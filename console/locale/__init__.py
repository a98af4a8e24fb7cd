"""The console's languages: English as it stands in the code, or a gettext catalogue over it."""
