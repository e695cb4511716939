"""The judge of every runtime: cases as plain text, and an oracle that recomputes each answer from the contract."""
