"""What the GPU kernels share: when they run, which instructions a card has, functions in Triton's language."""
