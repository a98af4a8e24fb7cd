"""From a report to what people and programs read: documents, their formats, JSON Schemas."""
