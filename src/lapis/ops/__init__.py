"""Operations as pure functions. The module is the variant, the function name is the operation:

reference.py  numpy, short enough to check by eye
eager.py      torch, differentiable, any device
native.py     numpy arrays through the native library
custom.py     torch operators over the native library, falling back to eager
"""
