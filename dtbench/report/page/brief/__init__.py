"""An answer on one screen: the answer, where steps went, why, the largest owners, what must be doubted.

The whole page (``--full``, HTML, TensorBoard) has everything; what is left out here is counted.
"""
