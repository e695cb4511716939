"""The Linear Road benchmark as a kit: variable tolls on expressways whose cars report their positions.

`reports` has the columns of the input, `traffic` makes an input, `history` makes the ten weeks before it, `validator`
recomputes the answers and `answers` compares two sets of them.
"""
