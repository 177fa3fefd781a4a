"""Compaction: what stands for the part of a conversation that is no longer sent. Pure: texts in, texts out."""
