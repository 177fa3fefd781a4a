"""Work that keeps sessions in good order, beside any turn."""
