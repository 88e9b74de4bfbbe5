"""Images with labels: where they lie, how they are read, how they become batches.

Reading needs numpy and Pillow only; `transforms` and `loader` make torch tensors.
"""
