"""Labelled images: finding them, reading them and making batches.

Reading needs only numpy and Pillow; `transforms` and `loader` make torch tensors.
"""
