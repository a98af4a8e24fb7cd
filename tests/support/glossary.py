"""The glossary of the Chinese product, and what of it a translation lacks."""

import re

from repository import ROOT

GLOSSARY = ROOT / "docs/zh/glossary.md"


def terms():
    """English -> what one of must stand in the translation."""
    text = GLOSSARY.read_text("utf-8").partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return {english: chinese.split(" / ") for english, chinese in rows[1:] if "---" not in english}


def lacking(said, text, known):
    """Terms of an English text, code taken out, of which its translation has no word."""
    return [
        (english, chinese)
        for english, chinese in known.items()
        if re.search(rf"(?<![-\w/.]){english}(?![-\w/.=])", text, re.IGNORECASE)
        and not any(word in said for word in chinese)
    ]
