"""Canaries in every credential: provoked as they may be, none sings."""
