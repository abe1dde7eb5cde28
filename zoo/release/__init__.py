"""From finished runs to what users get: entries of the zoo, cards, tables."""
